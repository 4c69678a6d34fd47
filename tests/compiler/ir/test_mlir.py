"""The generic form of MLIR: our own round trip, and what MLIR and xDSL say of it and print of it."""

import shutil
import subprocess
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.parser import Parser
from xdsl.printer import Printer

from tests.compiler.ir.content import content, meaning
from tests.compiler.ir.graphs import graphs
from tests.compiler.ir.tensor_graphs import tensor_graphs
from tests.compiler.shapes import SMOLLM2, tensor_types
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.mlir import to_mlir
from unsay.compiler.ir.mlir_reader import from_mlir
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.errors import IrError

_HARD = parse(r"""graph a.b-c_1(B: 1..8, P: 0..2047, S: 1..2559 = 2*B*P - 1) where (B + P) % 2 == 0, S <= 9
  sema {dynamic_batch = "B", device.conv2d = "gpu"} {
  %0 = input() {name = "\"\\\n\u00e4\u0000"} : tensor<B x 3 x P x S x bf16, layout = "nhwc", device = "gpu">
  %_ = input() {name = "a", sema.x-y = -inf} : tensor<f64, device = "npu">
  %1a = weight() {tensor = "q"} : tensor<64 x 32 x q4_1, layout = "paired:32">
  %_- = constant() {value = [inf, -0.0, 1e-300, 0.1]} : tensor<2 x 2 x f32>
  %a.1 = constant() {value = [-3, 0]} : tensor<2 x i8>
  %b = constant() {value = [0, 1], sema.empty = [], sema.t = true, sema.n = -9223372036854775808} : tensor<2 x bool>
  output(%0, %_)
}""")


@settings(max_examples=20, deadline=None)
@given(graphs() | tensor_graphs())
def test_a_graph_comes_back_as_it_was(graph: Graph):
    text = to_mlir(graph)
    again = from_mlir(text)
    assert content(again) == content(graph)
    assert to_mlir(again) == text


def test_what_is_hard_to_spell_comes_back():
    assert content(from_mlir(to_mlir(_HARD))) == content(_HARD)


def _mlir_opt(text: str) -> str:
    command = shutil.which("mlir-opt-19")
    assert command, "install mlir-19-tools: scripts/test-packages"
    flags = ["--allow-unregistered-dialect", "--mlir-print-op-generic"]
    result = subprocess.run([command, *flags], input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def _xdsl(text: str) -> str:
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    module = Parser(context, text).parse_module()
    module.verify()
    printed: list[str] = []

    class _Sink:
        def write(self, part: str) -> None:
            printed.append(part)

    Printer(stream=_Sink(), print_generic_format=True).print_op(module)  # pyright: ignore
    return "".join(printed)


@pytest.mark.parametrize("accept", [_mlir_opt, _xdsl])
def test_others_accept_what_is_hard_and_print_the_same_graph(accept):
    assert meaning(from_mlir(accept(to_mlir(_HARD)))) == meaning(_HARD)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tensor_graphs() | graphs())
def test_xdsl_accepts_any_graph_and_prints_the_same(graph: Graph):
    assert meaning(from_mlir(_xdsl(to_mlir(graph)))) == meaning(graph)


def test_mlir_accepts_a_whole_model_and_prints_the_same():
    graph = build_graph(SMOLLM2, tensor_types(SMOLLM2), 512, 64)
    assert meaning(from_mlir(_mlir_opt(to_mlir(graph)))) == meaning(graph)


_TEXT = """"builtin.module"() ({
  "llmir.graph"() ({
    %%x = "llmir.input"() {name = "x"} : () -> tensor<?x4xf32, {dims = ["T"]}>
    %s
  }) {dims = "T: 1..8", name = "g"} : () -> ()
}) : () -> ()
"""


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ('%y = "llmir.exp"(%z) : (tensor<f32>) -> tensor<f32>', 22, "%z is used before it is defined"),
        ('%x = "llmir.exp"(%x) : (tensor<f32>) -> tensor<f32>', 5, "%x is defined twice"),
        ('%y = "arith.exp"(%x) : (tensor<f32>) -> tensor<f32>', 10, "an operation of llmir, found"),
        ('%y = "llmir.exp"(%x) : (tensor<f32>) -> tensor<?xf32>', 45, "dims must name the 1 dynamic dimensions, got"),
        ('%y = "llmir.exp"(%x) : () -> tensor<?xf32, {dims = ["S"]}>', 34, "dimension 'S', known are T"),
        ('%y = "llmir.exp"(%x) : () -> tensor<0xf32>', 34, "a dimension of 0"),
        ('%y = "llmir.exp"(%x) : () -> tensor<4xf31>', 34, "element type 'f31'"),
        ('%y = "llmir.exp"(%x) : () -> tensor<4xf32, {layout = "nhwc"}>', 34, "layout 'nhwc' on device 'cpu'"),
        ('%y = "llmir.exp"(%x) {a = ["b"]} : () -> tensor<4xf32>', 5, "a is a number, a string, a bool or a list"),
        ('%y = "llmir.exp"(%x) : () -> ()', 5, "exp has 1 results and 0 types"),
        ('%y = "llmir.exp"(%x) {a = @b} : () -> tensor<4xf32>', 31, "no token begins with '@'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_line_and_column(line: str, column: int, message: str):
    with pytest.raises(IrError) as caught:
        from_mlir(_TEXT % line)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (4, column)


@settings(max_examples=15, deadline=None)
@given(
    graphs() | tensor_graphs(), st.integers(0, 10**6), st.integers(0, 30), st.sampled_from(["", "9" * 5000, "{a = "])
)
def test_a_damaged_text_is_read_or_refused_and_nothing_else(graph: Graph, start: int, length: int, put: str):
    text = to_mlir(graph)
    start %= len(text)
    with suppress(IrError):
        from_mlir(text[:start] + put + text[start + length :])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ('name = "g", dims = "T: 8..1"', "the head of the graph: 1:9: dimension T: 8..1 is not a range of sizes"),
        ('name = "g() {} //"', "has more in it than name, dims and where"),
        ('name = "g", dims = ") sema {a = 1} {} //"', "has more in it than name, dims and where"),
        ('name = "g", sema = {a = {b = {c = 1 : i64}}}', "expected a number or a string, found '{'"),
        ('name = "g", sema = 1 : i64', "sema must be a dictionary, got 1"),
        ('name = "\\FF"', "a string that is not UTF-8"),
        ('dims = ""', "the head of the graph: 1:7: expected a name"),
    ],
)
def test_a_head_that_is_wrong_is_refused(head: str, message: str):
    with pytest.raises(IrError) as caught:
        from_mlir(f'"builtin.module"() ({{ "llmir.graph"() ({{ }}) {{{head}}} : () -> () }}) : () -> ()')
    assert message in str(caught.value) and caught.value.line == 1
