import pytest

from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.types import TensorType
from unsay.errors import IrError
from unsay.isa.formats import DType

_VALUES = """graph g(T: 1..8, R: 1..2) {
  %ids = tokens() : tensor<T x i32>
  %x = weight() {tensor = "x"} : tensor<T x 64 x f32>
  %s = weight() {tensor = "s"} : tensor<T x 48 x f32>
  %q = weight() {tensor = "q"} : tensor<T x 64 x q8a>
  %e = weight() {tensor = "e"} : tensor<256 x 64 x q4_0>
  %w = weight() {tensor = "w"} : tensor<32 x 64 x f16>
  %wp = weight() {tensor = "w"} : tensor<64 x 64 x f16, layout = "paired:32">
  %g = weight() {tensor = "g"} : tensor<64 x f32>
  %b = weight() {tensor = "b"} : tensor<32 x f32>
  %p = linear(%x, %wp) : tensor<T x 64 x f32, layout = "paired:32">
"""

_ROPE = 'base = 10000.0, num_heads = 2, pairing = "halves"'
_ATTENTION = 'layer = 0, num_heads = 2, num_kv_heads = 2, output = "f32", scale = 0.5'

_LEGAL = [
    "%y = embed(%ids, %e) : tensor<T x 64 x f32>",
    '%y = rms_norm(%x, %g) {eps = 1e-05, output = "q8w"} : tensor<T x 64 x q8w>',
    '%y = layer_norm(%x, %g, %g) {eps = 1e-05, output = "f32"} : tensor<T x 64 x f32>',
    "%y = linear(%x, %w, %b) : tensor<T x 32 x f32>",
    "%y = linear(%q, %e) : tensor<T x 256 x f32>",
    "%y = linear(%x, %e) : tensor<T x 256 x f32>",
    f"%y = rope(%x) {{head_dim = 32, {_ROPE}}} : tensor<T x 64 x f32>",
    f'%y = rope(%p) {{head_dim = 32, {_ROPE}}} : tensor<T x 64 x f32, layout = "paired:32">',
    f"%y = attention(%p, %p, %x) {{head_dim = 32, {_ATTENTION}}} : tensor<T x 64 x f32>",
    "%y = select_rows(%x) : tensor<R x 64 x f32>",
    '%y = quantise(%x) {output = "q8a"} : tensor<T x 64 x q8a>',
    '%y = quantise(%x) {output = "q8w"} : tensor<T x 64 x q8w>',
    '%w8 = quantise(%x) {output = "q8w"} : tensor<T x 64 x q8w>\n%y = linear(%w8, %e) : tensor<T x 256 x f32>',
    'output(%y0)',
]  # fmt: skip

_ILLEGAL = [
    ("%y = nothing(%x) : tensor<T x 64 x f32>", "no such operation"),
    ("%y = add(%x) : tensor<T x 64 x f32>", r"takes \(a, b\), got 1"),
    ("%y = silu(%x, %x) : tensor<T x 64 x f32>", r"takes \(x\), got 2"),
    ("%y = silu(%x) : tensor<T x 63 x f32>", "results are tensor<T x 64 x f32>, not tensor<T x 63 x f32>"),
    ("silu(%x)", "results are tensor<T x 64 x f32>, not"),
    ("%y, %z = weight() {tensor = \"y\"} : tensor<4 x f32>, tensor<4 x f32>", "has 1 results, got 2"),
    ("%y = silu(%q) : tensor<T x 64 x q8a>", "x must be of f32, f16, bf16, f64, got"),
    ("%y = add(%x, %s) : tensor<T x 64 x f32>", r"\[T x 64\] and \[T x 48\] do not broadcast"),
    ("%y = weight() {tensor = \"\"} : tensor<4 x f32>", "must hold: tensor != ''"),
    ("%y = weight() : tensor<4 x f32>", r"attributes are \['tensor'\], got \[\]"),
    ('%y = rms_norm(%x, %g) {eps = 0.0, output = "f32"} : tensor<T x 64 x f32>', "must hold: eps > 0"),
    ('%y = rms_norm(%x, %g) {eps = 1, output = "f32"} : tensor<T x 64 x f32>', "eps must be of float"),
    ('%y = rms_norm(%x, %g) {eps = 1e999, output = "f32"} : tensor<T x 64 x f32>', "eps must be finite"),
    ('%y = rms_norm(%x, %g) {eps = 0.1, output = "f16"} : tensor<T x 64 x f32>', "output must be one of"),
    ('%y = rms_norm(%x, %b) {eps = 0.1, output = "f32"} : tensor<T x 64 x f32>', "a vector must be tensor<64 x f32>"),
    ('%y = rms_norm(%s, %g) {eps = 0.1, output = "f32"} : tensor<T x 48 x f32>', "a vector must be tensor<48 x f32>"),
    ("%y = embed(%x, %e) : tensor<T x 64 x f32>", "ids must be a vector of i32"),
    ("%y = embed(%ids, %wp) : tensor<T x 64 x f32>", "w must be in row layout"),
    ("%y = linear(%s, %w) : tensor<T x 32 x f32>", "x must have 64 columns"),
    ("%y = linear(%q, %w) : tensor<T x 32 x f32>", "q8a or q8w for a quantised w"),
    ("%y = linear(%x, %x) : tensor<T x 32 x f32>", "must be a weight matrix of fixed size"),
    ("%y = linear(%p, %w) : tensor<T x 32 x f32>", "x must be in row layout"),
    ("%y = linear(%x, %w, %g) : tensor<T x 32 x f32>", "a vector must be tensor<32 x f32>"),
    ('%y = quantise(%s) {output = "q8a"} : tensor<T x 48 x q8a>', "q8a needs a multiple of 32 columns"),
    ('%y = quantise(%s) {output = "q8w"} : tensor<T x 48 x q8w>', "q8w needs a multiple of 32 columns"),
    ('%y = quantise(%x) {output = "f32"} : tensor<T x 64 x f32>', "output must be one of"),
    ('%y = rms_norm(%x, %g) {eps = 0.1, output = "q8a"} : tensor<T x 64 x q8a>', "output must be one of"),
    (f'%y = attention(%x, %x, %x) {{head_dim = 32, {_ATTENTION.replace("f32", "q8w")}}} : tensor<T x 64 x q8w>',
     "output must be one of"),
    (f"%y = rope(%x) {{head_dim = 48, {_ROPE}}} : tensor<T x 64 x f32>", "2 heads of 48 need 96 columns"),
    (f"%y = rope(%x) {{head_dim = 33, {_ROPE}}} : tensor<T x 64 x f32>", "must hold: head_dim > 0"),
    (f"%y = attention(%p, %x, %x) {{head_dim = 32, {_ATTENTION}}} : tensor<T x 64 x f32>", "in the same layout"),
    (f"%y = attention(%x, %x, %p) {{head_dim = 32, {_ATTENTION}}} : tensor<T x 64 x f32>", "v must be in row layout"),
]  # fmt: skip


@pytest.mark.parametrize("text", _LEGAL)
def test_a_well_typed_operation_passes(text: str):
    rows = "  %y0 = select_rows(%x) : tensor<R x 64 x f32>\n"
    verify(parse(f"{_VALUES}{rows}  {text}\n}}"))


@pytest.mark.parametrize(("text", "message"), _ILLEGAL)
def test_an_operation_against_its_row_is_refused_at_its_place(text: str, message: str):
    with pytest.raises(IrError, match=message) as caught:
        verify(parse(f"{_VALUES}  {text}\n}}"))
    assert (caught.value.line, caught.value.column) == (12, 3)


def test_a_graph_without_the_dimension_an_operation_needs_is_refused():
    with pytest.raises(IrError, match="no dimension T, it has S"):
        verify(parse("graph g(S: 1..8) {\n  %ids = tokens() : tensor<S x i32>\n}"))


def test_an_attribute_of_more_than_64_bits_is_refused():
    graph = parse(f"{_VALUES}}}")
    graph.add("iota", (), {"axis": 2**63}, [("y", TensorType((4,), DType.I64))])
    with pytest.raises(IrError, match="axis must be of 64 bits"):
        verify(graph)


def test_a_broken_def_use_chain_is_our_fault():
    graph = parse(f"{_VALUES}}}")
    graph.operations[-1].operands[0].uses.clear()
    with pytest.raises(AssertionError):
        verify(graph)


def test_a_use_before_the_definition_is_refused():
    graph = parse(f"{_VALUES}}}")
    graph.operations.insert(0, graph.operations.pop())
    with pytest.raises(IrError, match="%x is not defined before"):
        verify(graph)


def test_an_operation_changed_in_place_is_checked_again():
    graph, checked = parse(f"{_VALUES}}}"), {}
    verify(graph, checked)
    product = graph.operations[-1]
    product.operands = product.operands[::-1]
    with pytest.raises(IrError, match="linear: "):
        verify(graph, checked)
