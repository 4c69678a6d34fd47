"""T0: the relations of every operation, on graphs that are right and on graphs whose sizes do not fit."""

from dataclasses import replace

import pytest

from tests.compiler.passes.cases import cases
from tests.compiler.shapes import TINY_QWEN2, tensor_types
from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import run_passes
from unsay.compiler.verify.obligation import Status
from unsay.compiler.verify.relations import RELATIONS
from unsay.compiler.verify.shapes import prove_possible, prove_sizes


def test_every_operation_has_a_row():
    assert RELATIONS.keys() == BY_NAME.keys()


def test_sizes_of_a_model_fit_before_and_after_its_passes():
    graph = build_graph(TINY_QWEN2, tensor_types(TINY_QWEN2), 32, 4)
    for stage in (graph.copy(), run_passes(graph)):
        result = prove_sizes(stage)
        assert result.status is Status.PROVED and "claims on dimensions" in result.detail


def test_sizes_of_every_case_fit():
    for case in cases():
        result = prove_sizes(parse(case.after))
        assert result.status is Status.PROVED, (case, result.detail)


_FITS = """graph g(B: 1..8, P: 0..100, T: 1..64, S: 1..164 = P + T) where T % 16 == 0 {
  %x = input() {name = "x"} : tensor<B x T x 32 x f32>
  %k = input() {name = "k"} : tensor<B x P x 32 x f32>
  %a = concat(%k, %x) {axis = 1} : tensor<B x S x 32 x f32>
  %t = transpose(%a) {perm = [0, 2, 1]} : tensor<B x 32 x S x f32>
  %s = matmul(%x, %t) : tensor<B x T x S x f32>
  %r = slice(%x) {axis = 1, start = 0, step = 1, stop = 16} : tensor<B x 16 x 32 x f32>
  output(%s, %r)
}"""


def test_a_constraint_is_what_makes_a_slice_fit():
    graph = parse(_FITS)
    assert prove_sizes(graph).status is Status.PROVED
    graph.constraints = ()
    result = prove_sizes(graph)
    assert result.status is Status.REFUTED
    assert "slice" in result.detail and "T = " in result.detail


@pytest.mark.parametrize(("value", "dims"), [("a", (0, 1, 2)), ("s", (0, 1, 1)), ("t", (0, 2, 2)), ("r", (0, 1, 2))])
def test_a_result_of_other_sizes_is_refuted(value: str, dims: tuple[int, ...]):
    graph = parse(_FITS)
    made = {item.name: item for operation in graph.operations for item in operation.results}
    extents = (graph.dims["B"], graph.dims["T"], 32)
    wrong = tuple(extents[place] for place in dims)
    made[value].type = replace(made[value].type, dims=wrong)
    result = prove_sizes(graph)
    assert result.status is Status.REFUTED and f"%{value} = " in result.detail


def test_constraints_that_no_sizes_keep_are_found():
    graph = parse("graph g(T: 1..8) where T >= 9 {\n}")
    assert prove_possible(graph).status is Status.REFUTED
    assert prove_possible(parse(_FITS)).status is Status.PROVED
