"""Shape rules of the tensor operations over dimensions without a fixed size: legal, and refused at its place."""

import pytest

from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse
from unsay.errors import IrError

_HEAD = """graph g(B: 1..8, P: 1..2047, T: 2..512, S: 1..2559 = P + T, N: 1..4096 = B*T, L: 1..511 = T - 1) {
  %x = input() {name = "x"} : tensor<B x T x 8 x f32>
  %p = input() {name = "p"} : tensor<B x P x 8 x f32>
  %i = input() {name = "i"} : tensor<T x i64>
  %c = input() {name = "c"} : tensor<B x T x 8 x bool>
  %w = weight() {tensor = "w"} : tensor<8 x 6 x f32>
  %v = weight() {tensor = "v"} : tensor<8 x f32>
  %m = input() {name = "m"} : tensor<B x 3 x 16 x 12 x f32>
  %k = weight() {tensor = "k"} : tensor<4 x 3 x 3 x 3 x f32>
  %g = input() {name = "g"} : tensor<B x T x 8 x f32, device = "gpu">
  %n = input() {name = "n"} : tensor<B x 3 x 16 x 12 x f32, layout = "nhwc">
"""
_LINE = _HEAD.count("\n") + 1
_CONV = "dilations = [1, 1], groups = 1, pads = [1, 1, 1, 1], strides = [2, 1]"
_SLICE = "axis = 1, start = {}, stop = {}, step = {}"

_LEGAL = [
    "%y = add(%x, %v) : tensor<B x T x 8 x f32>",
    "%y = less(%x, %v) : tensor<B x T x 8 x bool>",
    "%y = select(%c, %v, %x) : tensor<B x T x 8 x f32>",
    "%y = matmul(%x, %w) : tensor<B x T x 6 x f32>",
    "%y = transpose(%x) {perm = [2, 0, 1]} : tensor<8 x B x T x f32>",
    "%y = reshape(%x) : tensor<N x 8 x f32>",
    "%y = reshape(%x) : tensor<8 x T x B x 1 x f32>",
    "%y = broadcast_to(%v) : tensor<B x T x 8 x f32>",
    "%y = concat(%p, %x) {axis = 1} : tensor<B x S x 8 x f32>",
    "%y = concat(%x, %x) {axis = 2} : tensor<B x T x 16 x f32>",
    f"%y = slice(%x) {{{_SLICE.format(0, 512, 1)}}} : tensor<B x T x 8 x f32>",
    f"%y = slice(%x) {{{_SLICE.format(1, 512, 1)}}} : tensor<B x L x 8 x f32>",
    f"%y = slice(%x) {{{_SLICE.format(0, -1, 1)}}} : tensor<B x L x 8 x f32>",
    f"%y = slice(%x) {{{_SLICE.format(-1, 512, 1)}}} : tensor<B x 1 x 8 x f32>",
    f"%y = slice(%w) {{{_SLICE.format(0, 5, 2)}}} : tensor<8 x 3 x f32>",
    "%y = gather(%x, %i) {axis = 1} : tensor<B x T x 8 x f32>",
    "%y = reduce_max(%x) {axes = [0, -1], keepdims = true} : tensor<1 x T x 1 x f32>",
    "%y = argmax(%x) {axis = 1} : tensor<B x 8 x i64>",
    '%y = size() {dim = "S"} : tensor<i64>',
    "%y = iota() {axis = 1} : tensor<B x S x i64>",
    "%y = constant() {value = [-inf]} : tensor<B x S x f32>",
    "%y = constant() {value = [1, 0]} : tensor<2 x bool>",
    f"%y = conv2d(%m, %k) {{{_CONV}}} : tensor<B x 4 x 8 x 12 x f32>",
    "%y = pad(%x) {pads = [0, 0, 1, 0, 0, 7], value = 0.0} : tensor<B x T x 16 x f32>",
    "%y = sdpa(%x, %p, %p) {scale = 0.5} : tensor<B x T x 8 x f32>",
    '%y = reorder(%m) {layout = "blocked:8"} : tensor<B x 3 x 16 x 12 x f32, layout = "blocked:8">',
    '%y = transfer(%x) {device = "gpu"} : tensor<B x T x 8 x f32, device = "gpu">',
    "%y = silu(%x) {sema.stage = 3} : tensor<B x T x 8 x f32>",
    "output(%x, %i)",
]  # fmt: skip

_ILLEGAL = [
    ("%y = exp(%i) : tensor<T x i64>", "x must be of f32, f16, bf16, f64, got tensor<T x i64>"),
    ("%y = not(%x) : tensor<B x T x 8 x f32>", "x must be of bool"),
    ("%y = add(%x, %p) : tensor<B x T x 8 x f32>", r"\[B x T x 8\] and \[B x P x 8\] do not broadcast"),
    ("%y = add(%x, %i) : tensor<B x T x 8 x f32>", "of one element type"),
    ("%y = add(%x, %g) : tensor<B x T x 8 x f32>", "on one device"),
    ("%y = add(%m, %n) : tensor<B x 3 x 16 x 12 x f32>", "in one layout"),
    ("%y = div(%i, %i) : tensor<T x i64>", "operands must be of f32"),
    ("%y = and(%c, %x) : tensor<B x T x 8 x bool>", "of one element type"),
    ("%y = select(%x, %x, %x) : tensor<B x T x 8 x f32>", "condition must be of bool"),
    ("%y = matmul(%x, %p) : tensor<B x T x 8 x f32>", "as many columns as b has rows"),
    ("%y = matmul(%x, %v) : tensor<B x T x f32>", "must be matrices"),
    ("%y = transpose(%x) {perm = [0, 1, 1]} : tensor<B x T x T x f32>", r"perm must order 0\.\.2"),
    ("%y = transpose(%n) {perm = [0, 1, 3, 2]} : tensor<B x 3 x 12 x 16 x f32>", "x must be in row layout"),
    ("%y = reshape(%x) : tensor<N x 9 x f32>", r"has 8\*B\*T elements, tensor<N x 9 x f32> has 9\*B\*T"),
    ("%y = reshape(%x) : tensor<N x 8 x f16>", "only the shape may change"),
    ("%y = broadcast_to(%x) : tensor<B x S x 8 x f32>", "does not broadcast to"),
    ("%y = concat(%x, %x) {axis = 1} : tensor<B x S x 8 x f32>", r"no dimension of 2\*T: declare one, as in `S: LOW"),
    ("%y = concat(%x, %w) {axis = 1} : tensor<B x S x 8 x f32>", "must be alike but for axis 1"),
    (f"%y = slice(%x) {{{_SLICE.format(3, 512, 1)}}} : tensor<B x L x 8 x f32>", r"3 is not inside T at all its sizes"),
    (f"%y = slice(%x) {{{_SLICE.format(0, 512, 2)}}} : tensor<B x L x 8 x f32>", "in steps of 1"),
    (f"%y = slice(%w) {{{_SLICE.format(5, 5, 1)}}} : tensor<8 x 0 x f32>", "a dimension of 0"),
    (f"%y = slice(%w) {{{_SLICE.format(5, 5, 1)}}} : tensor<8 x 1 x f32>", "nothing of"),
    (f"%y = slice(%w) {{{_SLICE.format(5, 0, -1)}}} : tensor<8 x 1 x f32>", "must hold: step > 0"),
    ("%y = gather(%x, %v) {axis = 1} : tensor<B x 8 x 8 x f32>", "indices must be of i32, i64"),
    ("%y = softmax(%x) {axis = 3} : tensor<B x T x 8 x f32>", "axis 3 is not one of 3 dimensions"),
    ("%y = reduce_sum(%x) {axes = [0, -3], keepdims = true} : tensor<1 x T x 8 x f32>", "some and each once"),
    ("%y = reduce_sum(%x) {axes = [0.5], keepdims = true} : tensor<1 x T x 8 x f32>", "axes must be of ints"),
    ("%y = reduce_sum(%x) {axes = [0], keepdims = 1} : tensor<1 x T x 8 x f32>", "keepdims must be of bool"),
    ("%y = reduce_mean(%i) {axes = [0], keepdims = true} : tensor<1 x i64>", "x must be of f32"),
    ('%y = size() {dim = "Q"} : tensor<i64>', "the graph has no dimension Q, it has B, P, T"),
    ("%y = constant() {value = [1, 2]} : tensor<3 x i64>", "needs one value or one for each element, got 2"),
    ("%y = constant() {value = [1, 2]} : tensor<2 x f32>", "needs values of float"),
    ("%y = constant() {value = [2]} : tensor<bool>", "needs values of 0 and 1"),
    ("%y = iota() {axis = 0} : tensor<4 x bool>", "iota must be of"),
    (f"%y = conv2d(%x, %k) {{{_CONV}}} : tensor<4 x f32>", r"x must be \[N, C, H, W\]"),
    (f"%y = conv2d(%m, %k, %v) {{{_CONV}}} : tensor<B x 4 x 8 x 12 x f32>", r"bias must be \[4\]"),
    (f"%y = conv2d(%m, %m) {{{_CONV}}} : tensor<B x 4 x 8 x 12 x f32>", "do not fit the channels"),
    (f"%y = conv2d(%m, %k) {{{_CONV.replace('groups = 1', 'groups = 0')}}} : tensor<4 x f32>", "must hold: groups > 0"),
    (f"%y = conv2d(%m, %k) {{{_CONV.replace('[2, 1]', '[2, 0]')}}} : tensor<4 x f32>", "strides and dilations"),
    (f"%y = conv2d(%m, %k) {{{_CONV.replace('[1, 1, 1, 1]', '[1, 1]')}}} : tensor<4 x f32>", "pads must be four"),
    (f"%y = conv2d(%m, %k) {{{_CONV.replace('[1, 1],', '[9, 9],')}}} : tensor<4 x f32>", "a window of 17 does not fit"),
    ("%y = max_pool2d(%m) {kernel = [2, 2], pads = [2, 0, 0, 0], strides = [1, 1]} : tensor<4 x f32>", "less than"),
    ("%y = batch_norm(%m, %v, %v, %v, %v) {eps = 0.1} : tensor<B x 3 x 16 x 12 x f32>", r"must be \[3\] like x"),
    ("%y = pad(%x) {pads = [0, 1], value = 0.0} : tensor<B x T x 8 x f32>", "pads must be 6 sizes"),
    ("%y = sdpa(%x, %p, %x) {scale = 0.5} : tensor<B x T x 8 x f32>", "k and v must have as many rows"),
    ("%y = sdpa(%x, %p, %p, %x) {scale = 0.5} : tensor<B x T x 8 x f32>", "does not broadcast to"),
    ("%y = sdpa(%x, %p, %p) {scale = 0.0} : tensor<B x T x 8 x f32>", "must hold: scale > 0"),
    ('%y = reorder(%x) {layout = "nhwc"} : tensor<B x T x 8 x f32>', "layout nhwc does not fit"),
    ('%y = reorder(%x) {layout = "nwhc"} : tensor<B x T x 8 x f32>', "layout 'nwhc' is not known"),
    ('%y = transfer(%x) {device = "tpu"} : tensor<B x T x 8 x f32>', "device must be one of"),
    ("output()", r"takes \(x\.\.\.\), got 0"),
]  # fmt: skip


@pytest.mark.parametrize("text", _LEGAL)
def test_a_well_typed_operation_passes(text: str):
    verify(parse(f"{_HEAD}  {text}\n}}"))


@pytest.mark.parametrize(("text", "message"), _ILLEGAL)
def test_an_operation_against_its_row_is_refused_at_its_place(text: str, message: str):
    with pytest.raises(IrError, match=message) as caught:
        verify(parse(f"{_HEAD}  {text}\n}}"))
    assert caught.value.line == _LINE
