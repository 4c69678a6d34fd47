"""What a proof says a pass keeps is kept: where it says bits, results have the same bits, also in narrow types."""

import numpy as np
import pytest

from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.passes.pipeline import find_passes
from unsay.compiler.verify.validate import run_validated

_CONV = "{dilations = [1, 1], groups = 1, pads = [0, 0, 0, 0], strides = [1, 1]}"

_GRAPHS = {
    "the root of one over": ("canonicalise", """
  %x = input() {name = "x"} : tensor<1000 x DT>
  %a = abs(%x) : tensor<1000 x DT>
  %s = sqrt(%a) : tensor<1000 x DT>
  %y = reciprocal(%s) : tensor<1000 x DT>"""),
    "one over": ("canonicalise", """
  %x = input() {name = "x"} : tensor<1000 x DT>
  %c = constant() {value = [1.0]} : tensor<DT>
  %y = div(%c, %x) : tensor<1000 x DT>"""),
    "a product with 1": ("canonicalise", """
  %x = input() {name = "x"} : tensor<1000 x DT>
  %c = constant() {value = [1.0]} : tensor<DT>
  %y = mul(%c, %x) : tensor<1000 x DT>"""),
    "at least -0": ("canonicalise", """
  %x = input() {name = "x"} : tensor<1000 x DT>
  %c = constant() {value = [-0.0]} : tensor<DT>
  %y = maximum(%x, %c) : tensor<1000 x DT>"""),
    "a bias": ("fuse_conv_relu", f"""
  %x = input() {{name = "x"}} : tensor<1 x 3 x 8 x 8 x DT>
  %w = input() {{name = "w"}} : tensor<4 x 3 x 3 x 3 x DT>
  %b = input() {{name = "b"}} : tensor<4 x DT>
  %h = conv2d(%x, %w) {_CONV} : tensor<1 x 4 x 6 x 6 x DT>
  %r = reshape(%b) : tensor<4 x 1 x 1 x DT>
  %y = add(%h, %r) : tensor<1 x 4 x 6 x 6 x DT>"""),
    "a convolution cut off": ("fuse_conv_relu", f"""
  %x = input() {{name = "x"}} : tensor<1 x 3 x 8 x 8 x DT>
  %w = input() {{name = "w"}} : tensor<4 x 3 x 3 x 3 x DT>
  %h = conv2d(%x, %w) {_CONV} : tensor<1 x 4 x 6 x 6 x DT>
  %y = relu(%h) : tensor<1 x 4 x 6 x 6 x DT>"""),
    "a product and silu": ("fuse_gemm_bias_silu", """
  %x = input() {name = "x"} : tensor<16 x 8 x DT>
  %w = input() {name = "w"} : tensor<8 x 4 x DT>
  %h = matmul(%x, %w) : tensor<16 x 4 x DT>
  %y = silu(%h) : tensor<16 x 4 x DT>"""),
    "a product, a bias and silu": ("fuse_gemm_bias_silu", """
  %x = input() {name = "x"} : tensor<16 x 8 x DT>
  %w = input() {name = "w"} : tensor<8 x 4 x DT>
  %b = input() {name = "b"} : tensor<4 x DT>
  %h = matmul(%x, %w) : tensor<16 x 4 x DT>
  %a = add(%h, %b) : tensor<16 x 4 x DT>
  %y = silu(%a) : tensor<16 x 4 x DT>"""),
}  # fmt: skip
_ROUNDED_IF_NARROW = ("the root of one over", "a bias", "a product and silu", "a product, a bias and silu")
_SPECIAL = (0.0, -0.0, np.inf, -np.inf, 1e-7, -1e-7, 1.0, 65504.0)


def _inputs(graph: Graph, dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    made: dict[str, np.ndarray] = {}
    for operation in graph.operations:
        if operation.kind == "input":
            array = random.standard_normal(operation.result.type.dims).astype(np.float32)
            if array.size == 1000:
                array[: len(_SPECIAL)] = _SPECIAL
            made[operation.string("name")] = array.astype(np.float16) if dtype == "f16" else array
    return made


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", _GRAPHS)
def test_where_a_proof_says_bits_they_are_kept(name: str, dtype: str):
    passes, text = _GRAPHS[name]
    graph = parse(f"graph g() {{{text}\n  output(%y)\n}}".replace("DT", dtype))
    given = _inputs(graph, dtype)
    (before,) = evaluate(graph, given, {})
    (proof,) = run_validated(graph, find_passes([passes]))
    (after,) = evaluate(graph, given, {})
    assert proof.instances > 0
    assert proof.keeps != "bits" or before.tobytes() == after.tobytes()
    if name != "at least -0":
        assert proof.keeps == ("rounded" if name in _ROUNDED_IF_NARROW and dtype != "f32" else "bits")
    np.testing.assert_allclose(after.astype(np.float64), before, rtol=2e-2, atol=2e-2)
