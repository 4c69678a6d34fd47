"""What an operation makes of the elements outside a tile, of which some are numbers and some are not known.

An element that is not known is taken to be finite, and no divisor 0: -inf + it is -inf, 0 * it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from unsay.compiler.ir.types import FLOATS
from unsay.isa.formats import DType

Number: TypeAlias = float | int | bool
Edge: TypeAlias = Number | None

COMPARISONS = frozenset({"equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "not"})

_NUMPY: dict[str, Callable[..., object]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "floor": np.floor, "tanh": np.tanh, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "select": np.where,
}  # fmt: skip


def compute(kind: str, numbers: Sequence[Number]) -> Number | None:
    """The operation on numbers; None if it has no place in the table or gives no number."""
    function = _NUMPY.get(kind)
    if function is None:
        return None
    with np.errstate(all="ignore"):
        given = [np.float32(number) if isinstance(number, float) else np.asarray(number)[()] for number in numbers]
        made = np.asarray(function(*given)).item()
    return None if made != made else made


def compute_edge(kind: str, edges: Sequence[Edge]) -> Edge:
    """The same where some are not known, but finite."""
    numbers = [edge for edge in edges if edge is not None]
    if len(numbers) == len(edges):
        return compute(kind, numbers)
    for position, edge in enumerate(edges):
        if edge is not None and (known := _absorbed(kind, position, edge)) is not None:
            return known
    if kind == "select" and (edges[0] is not None or edges[1] == edges[2]):
        return edges[2] if edges[0] is False else edges[1]
    return None


def _absorbed(kind: str, position: int, edge: Number) -> Edge:
    """What one operand decides alone, the others finite."""
    if kind in ("add", "sub") and math.isinf(edge):
        return -edge if kind == "sub" and position == 1 else edge
    if edge == 0 and (kind == "mul" or (kind == "div" and position == 0)):
        return 0.0
    if (kind == "maximum" and edge == math.inf) or (kind == "minimum" and edge == -math.inf):
        return edge
    return bool(edge) if (kind == "and" and not edge) or (kind == "or" and edge) else None


def number_of(number: Number, dtype: DType) -> Number:
    if dtype is DType.F16:
        return float(np.float16(number))
    return float(number) if dtype in FLOATS else bool(number) if dtype is DType.BOOL else int(number)
