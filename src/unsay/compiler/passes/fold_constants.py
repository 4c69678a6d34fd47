"""Computes what only constants go into.

    op(c1, c2, ..) {attributes}   ->   constant {value = op(c1, c2, ..)}      all operands constants of fixed size

by the meaning of dialect/semantics.py over floats, rounded to the element type as in running the graph. Left alone: a
result that is no number (text has no word for it), and one of more than 4096 elements that differ (large arrays are
weights, beside the graph and not in its text).
"""

from __future__ import annotations

import math

import numpy as np

from unsay.compiler.dialect.domains import FLOAT, Array
from unsay.compiler.dialect.ops import BY_NAME, declare
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import FLOATS, INTEGERS, ROW
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import remarks
from unsay.isa.formats import DType

MAX_ELEMENTS = 4096

_PLAIN = FLOATS | INTEGERS | {DType.BOOL}


def fold_constants(graph: Graph) -> int:
    """Number of operations computed."""
    return sum(_fold(graph, operation) for operation in list(graph.operations))


def _fold(graph: Graph, operation: Operation) -> bool:
    if not operation.operands or not BY_NAME[operation.kind].pure or len(operation.results) != 1:
        return False
    values = (operation.result, *operation.operands)
    if any(operand.producer.kind != "constant" for operand in operation.operands) or not all(map(_is_plain, values)):
        return False
    elements = _elements(_compute(operation))
    if len(elements) > MAX_ELEMENTS or any(math.isnan(element) for element in elements):
        return False
    result = operation.result
    attributes = {"value": elements, **remarks(operation)}
    constant = declare(graph, "constant", name=result.name, type=result.type, before=operation, **attributes)
    graph.substitute(operation, (constant,))
    erase_dead(graph, *(operand.producer for operand in operation.operands))
    return True


def _is_plain(value: Value) -> bool:
    fixed = all(isinstance(extent, int) for extent in value.type.dims)
    return fixed and value.type.dtype in _PLAIN and value.type.layout == ROW


def _compute(operation: Operation) -> Array:
    with np.errstate(all="ignore"):
        arrays = [SEMANTICS["constant"](FLOAT, operand.producer, ())[0] for operand in operation.operands]
        (result,) = SEMANTICS[operation.kind](FLOAT, operation, arrays)
        return FLOAT.round(result, operation.result.type.dtype)


def _elements(array: Array) -> tuple[int, ...] | tuple[float, ...]:
    """The elements in order; one, if all are the same in every bit."""
    flat = array.ravel()
    is_uniform = flat.tobytes() == flat[:1].tobytes() * len(flat)
    kind = float if array.dtype.kind == "f" else int
    return tuple(kind(element) for element in (flat[:1] if is_uniform else flat))
