"""A pass keeps what a graph computes: on random inputs, for every case of tests/ir where a tensor pass applies."""

import numpy as np
import pytest

from tests.compiler.passes.cases import Case, cases
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.ir.dims import Dim
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.passes.pipeline import TENSOR_PIPELINE
from unsay.isa.formats import DType

_TOLERANCE = {
    "canonicalise": 1e-6,
    "fold_batch_norm": 1e-6,
    "fuse_attention": 1e-6,
    "fuse_rms_norm": 1e-6,
    "propagate_precision": 1e-2,
}
"""Relative to the largest element, bf16 being the narrowest type; other passes keep every bit, as their files say."""

_TENSOR_PASSES = {step.name for step in TENSOR_PIPELINE} - {"cse", "dce"}
_CASES = [case for case in cases() if case.name in _TENSOR_PASSES and case.after != case.before]


def sizes(graph: Graph) -> dict[str, int]:
    """A size for every free dimension: the batch that is wanted, 3 for the others."""
    wanted = {graph.sema["dynamic_batch"]: graph.sema["batch"]} if "batch" in graph.sema else {}
    return {dim.name: wanted.get(dim.name, 3) for dim in graph.dims.values() if dim.formula is None}


def arrays(graph: Graph, kind: str, name: str) -> dict[str, np.ndarray]:
    """Random arrays for the inputs or the weights of a graph."""
    return {op.string(name): _array(op, sizes(graph)) for op in graph.operations if op.kind == kind}


def _array(operation: Operation, sizes: dict[str, int]) -> np.ndarray:
    tensor_type = operation.result.type
    shape = [sizes[extent.name] if isinstance(extent, Dim) else extent for extent in tensor_type.dims]
    numbers = np.random.default_rng(list(operation.result.name.encode())).standard_normal(shape).astype(np.float32)
    if tensor_type.dtype is not DType.BOOL:
        return np.abs(numbers) if operation.result.name == "v" and len(shape) == 1 else numbers
    condition = numbers > 0
    condition[..., 0], condition[..., -1] = True, False  # no row of a mask, nor of its opposite, is empty
    return condition


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_results_are_the_same(case: Case):
    graph = parse(case.before)
    given = arrays(graph, "input", "name"), arrays(graph, "weight", "tensor")
    pairs = list(zip(evaluate(graph, *given), evaluate(parse(case.after), *given), strict=True))
    assert pairs
    for expected, got in pairs:
        expected, got = expected.astype(np.float64), got.astype(np.float64)
        slack = _TOLERANCE.get(case.name, 0.0) * np.abs(expected).max(initial=0.0)
        assert np.isfinite(expected).all()
        assert np.abs(expected - got).max(initial=0.0) <= slack


def test_every_tensor_pass_is_among_the_cases():
    assert {case.name for case in _CASES} == _TENSOR_PASSES
