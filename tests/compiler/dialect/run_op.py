"""Graphs of one operation, for tests of what it means."""

import numpy as np

from unsay.compiler.dialect.ops import BY_NAME, build
from unsay.compiler.ir.core import AttributeValue, Graph
from unsay.compiler.ir.types import TensorType
from unsay.isa.formats import DType

_RANDOM = np.random.default_rng(11)
_DTYPES = {np.dtype(np.float32): DType.F32, np.dtype(np.int64): DType.I64, np.dtype(np.bool_): DType.BOOL}


def operand(*shape: int) -> np.ndarray:
    """Normal numbers, other ones at each call."""
    return _RANDOM.standard_normal(shape).astype(np.float32)


def graph_of(kind: str, operands: list[np.ndarray], attributes: dict[str, AttributeValue]) -> Graph:
    """Inputs x0, x1, ..., the operation on them, and its results as the output."""
    graph = Graph("one", ())
    values = [
        graph.add("input", (), {"name": f"x{index}"}, [("x", TensorType(array.shape, _DTYPES[array.dtype]))]).result
        for index, array in enumerate(operands)
    ]
    operation = build(graph, kind, values, attributes, BY_NAME[kind].results)
    graph.add("output", operation.results)
    return graph
