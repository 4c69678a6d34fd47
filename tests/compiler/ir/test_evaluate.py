from pathlib import Path

import numpy as np
import pytest

from tests.compiler.shapes import TINY, TINY_QWEN2, tensor_types
from tests.oracle import Oracle
from tests.tiny import TinyShape, tiny_weights, write_tiny_gguf
from unsay.compiler.dialect.domains import FIELD, FLOAT, PRIME, Domain
from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.dialect.semantics import FROM_OUTSIDE, SEMANTICS
from unsay.compiler.frontend.source import open_model
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import PIPELINE, run_passes
from unsay.compiler.pipeline import to_graph
from unsay.errors import RequestError
from unsay.image import ModelSpec
from unsay.isa.formats import DType

_CACHE = """graph g(B: 1..8, P: 0..2047, T: 1..512, S: 1..2559 = P + T, N: 1..4096 = 2*B*T) where T % 2 == 0, S <= 9 {
  %x = input() {name = "x"} : tensor<B x T x 4 x f32>
  %p = input() {name = "p"} : tensor<B x P x 4 x f32>
  %w = weight() {tensor = "w"} : tensor<4 x bf16>
  %k = concat(%p, %x) {axis = 1} : tensor<B x S x 4 x f32>
  %r = reshape(%x) : tensor<N x 2 x f32>
  %b = broadcast_to(%w) : tensor<B x T x 4 x bf16>
  %i = iota() {axis = 1} : tensor<B x S x i64>
  %c = constant() {value = [1.5, -2.0]} : tensor<2 x f16>
  %s = size() {dim = "S"} : tensor<i64>
  output(%k, %r, %b, %i, %c, %s)
}"""
_X, _P, _W = (
    np.ones((2, 4, 4), np.float32),
    np.zeros((2, 3, 4), np.float32),
    np.array([0x3F80, 0xC040, 0, 1], np.uint16),
)


def test_every_operation_has_a_meaning():
    assert BY_NAME.keys() == SEMANTICS.keys() | FROM_OUTSIDE
    assert not SEMANTICS.keys() & FROM_OUTSIDE


def test_sizes_are_read_off_the_inputs():
    cache, rows, repeated, index, constant, size = evaluate(parse(_CACHE), {"x": _X, "p": _P}, {"w": _W})
    assert np.array_equal(cache, np.concatenate([_P, _X], 1))
    assert rows.shape == (16, 2) and repeated.shape == (2, 4, 4)
    assert repeated[0, 0, :3].tolist() == [1, -3, 0] and 0 < repeated[0, 0, 3] < 1e-40
    assert np.array_equal(index, [list(range(7))] * 2) and index.dtype == np.int64
    assert constant.dtype == np.float16 and constant.tolist() == [1.5, -2]
    assert size == 7


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": _X}, "no input 'p' is given, there are 'x'"),
        ({"x": _X[0], "p": _P}, r"%x is tensor<B x T x 4 x f32>, got an array of shape \[4, 4\]"),
        ({"x": _X, "p": _P[:1]}, r"%p is tensor<B x P x 4 x f32> at .*, got an array of shape \[1, 3, 4\]"),
        ({"x": np.ones((9, 2, 4)), "p": np.ones((9, 0, 4))}, r"B must be in 1\.\.8, got 9"),
        ({"x": _X[:, :3], "p": _P}, "must hold: T % 2 == 0"),
        ({"x": _X, "p": np.ones((2, 8, 4))}, "must hold: S <= 9"),
    ],
)
def test_what_does_not_fit_is_refused(inputs: dict[str, np.ndarray], message: str):
    with pytest.raises(RequestError, match=message):
        evaluate(parse(_CACHE), inputs, {"w": _W})


def test_a_size_that_nothing_shows_is_refused():
    graph = parse("graph g(T: 1..8) {\n  %i = iota() {axis = 0} : tensor<T x i64>\n  output(%i)\n}")
    with pytest.raises(RequestError, match="nothing given says how large T is"):
        evaluate(graph, {}, {})


def test_an_index_outside_is_refused():
    graph = parse("""graph g() {
  %x = input() {name = "x"} : tensor<3 x f32>
  %i = input() {name = "i"} : tensor<2 x i64>
  %y = gather(%x, %i) {axis = 0} : tensor<2 x f32>
  output(%y)
}""")
    inputs = {"x": np.arange(3), "i": np.array([-3, 2])}
    assert evaluate(graph, inputs, {})[0].tolist() == [0, 2]
    with pytest.raises(RequestError, match="an index is outside %x"):
        evaluate(graph, {**inputs, "i": np.array([0, 3])}, {})


def _weights(graph: Graph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    weights = [operation for operation in graph.operations if operation.kind == "weight"]
    return {w.string("tensor"): random.standard_normal(w.result.type.dims) * 0.1 for w in weights}  # pyright: ignore


@pytest.mark.parametrize("domain", [FLOAT, FIELD], ids=["float", "field"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.Q8_0], ids=["f32", "q8_0"])
@pytest.mark.parametrize("spec", [TINY, TINY_QWEN2], ids=["llama", "qwen2"])
def test_a_step_means_the_same_before_and_after_its_fusions(spec: ModelSpec, dtype: DType, domain: Domain):
    graph = build_graph(spec, tensor_types(spec, dtype, dtype), 32, 4)
    weights, inputs = _weights(graph), {"tokens": np.arange(5) * 7, "rows": np.array([1, 4])}
    quantised = run_passes(graph.copy(), PIPELINE[:2])
    fused = run_passes(graph.copy())
    exact, before, after = (evaluate(each, inputs, weights, domain)[0] for each in (graph, quantised, fused))
    assert before.shape == (2, spec.vocab_size)
    assert np.array_equal(before, after)
    assert np.array_equal(exact, before) == (dtype is DType.F32)
    assert domain is FIELD or np.allclose(exact, before, atol=0.02)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_step_means_what_the_oracle_computes(architecture: str, tmp_path: Path):
    path = write_tiny_gguf(tmp_path / "tiny.gguf", dtype="F32", architecture=architecture)
    loaded = open_model(path)
    weights = tiny_weights(TinyShape(), loaded.spec.vocab_size, architecture, tied=True, seed=0)
    ids = [7, 90, 4, 211, 33, 7]
    (logits,) = evaluate(to_graph(loaded), {"tokens": np.array(ids), "rows": np.arange(6)}, weights)
    np.testing.assert_allclose(logits, Oracle(path).logits(ids), rtol=1e-4, atol=1e-4)


def test_a_field_tells_polynomials_apart():
    text = """graph g() {{
  %a = input() {{name = "a"}} : tensor<3 x 4 x f32>
  %b = input() {{name = "b"}} : tensor<4 x 5 x f32>
  %c = input() {{name = "c"}} : tensor<4 x 5 x f32>
{}
  output(%y)
}}"""
    sum_first = "  %s = add(%b, %c) : tensor<4 x 5 x f32>\n  %y = matmul(%a, %s) : tensor<3 x 5 x f32>"
    products = "".join(f"  %{x}{x} = matmul(%a, %{x}) : tensor<3 x 5 x f32>\n" for x in "bc")
    random = np.random.default_rng(5)
    inputs = {name: random.integers(0, PRIME, (3, 4) if name == "a" else (4, 5)).astype(np.uint64) for name in "abc"}
    first, last, wrong = (
        evaluate(parse(text.format(body)), inputs, {}, FIELD)[0]
        for body in (
            sum_first,
            products + "  %y = add(%bb, %cc) : tensor<3 x 5 x f32>",
            products + "  %y = add(%bb, %bb) : tensor<3 x 5 x f32>",
        )
    )
    assert np.array_equal(first, last)
    assert np.mean(first == wrong) < 0.1


def test_a_float_is_its_own_fraction_in_a_field():
    values = np.array([0.5, -0.1, 3.0, 1e-300, -5e-324, 1.7e308, 0.0])
    for value, residue in zip(values.tolist(), FIELD.lift(values).tolist(), strict=True):
        numerator, denominator = value.as_integer_ratio()
        assert residue * denominator % PRIME == numerator % PRIME
    assert len(set(FIELD.lift(np.array([np.inf, -np.inf, 0.0])).tolist())) == 3


def test_arithmetic_in_a_field_is_exact():
    a, b = (np.random.default_rng(seed).integers(1, PRIME, 50).astype(np.uint64) for seed in (1, 2))
    assert np.array_equal(FIELD.mul(FIELD.div(a, b), b), a)
    assert np.array_equal(FIELD.add(FIELD.sub(a, b), b), a)
    assert FIELD.matmul(a[None], b[:, None]).item() == sum(map(int.__mul__, a.tolist(), b.tolist())) % PRIME
    assert not np.array_equal(FIELD.maximum(a, 0.0), a) and np.array_equal(FIELD.maximum(a, a), a)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_rounding_to_a_narrow_type_breaks_no_invariant(dtype: str):
    text = f"""graph g() {{
      %x = input() {{name = "x"}} : tensor<2 x 1000 x {dtype}>
      %p = softmax(%x) {{axis = -1}} : tensor<2 x 1000 x {dtype}>
      %s = silu(%x) : tensor<2 x 1000 x {dtype}>
      output(%p, %s)
    }}"""
    x = np.linspace(-4, 4, 2000, dtype=np.float16 if dtype == "f16" else np.float32).reshape(2, 1000)
    evaluate(parse(text), {"x": x}, {}, checked=True)
