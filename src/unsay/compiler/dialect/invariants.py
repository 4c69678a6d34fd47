"""Value invariants of the table on numbers: `sum(p, axis=-1) == 1` over arrays by name.

An invariant is one comparison (<=, >= or ==) of expressions over operands, results, attributes and what the row's doc
defines, with mean, sum, min, max and abs of NumPy. It is true up to rounding, for every finite input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import Operation
from unsay.compiler.ir.types import NARROW

_NUMPY: dict[str, Any] = {
    "__builtins__": {},
    "mean": np.mean,
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "abs": np.abs,
}


_TOLERANCE, _NARROW_TOLERANCE = 1e-5, 2.0**-7
"""Of f32 and wider, and of f16 and bf16, where 10^5 elements of a softmax may all be rounded the same way."""


def holds(invariant: str, names: Mapping[str, Any], tolerance: float = _TOLERANCE) -> bool:
    """Whether it is true up to `tolerance` of the largest magnitude it speaks of, and at least of 1; nan never is."""
    left_code, relation, right_code = _parts(invariant)
    spoken_of = {name: _wide(names[name]) for name in {*left_code.co_names, *right_code.co_names} & names.keys()}
    left, right = (_value(code, spoken_of) for code in (left_code, right_code))
    slack = tolerance * max(1.0, *map(_magnitude, spoken_of.values()))
    if relation == "==":
        return bool(np.all(np.abs(left - right) <= slack))
    low, high = (left, right) if relation == "<=" else (right, left)
    return bool(np.all(low <= high + slack))


def broken(operation: Operation, operands: Sequence[Any], results: Sequence[Any]) -> str | None:
    """The first invariant of an operation that these arrays break, of those over its operands, results and attributes.

    Where a row's doc defines further names (p of an attention, q of a quantise) it is the checked executor's matter.
    """
    row = BY_NAME[operation.kind]
    given = [*zip(row.operands, operands, strict=False), *zip(row.results, results, strict=True)]
    names = {**operation.attributes, **{name.rstrip("?."): array for name, array in given}}
    narrow = any(value.type.dtype in NARROW for value in operation.results)
    tolerance = _NARROW_TOLERANCE if narrow else _TOLERANCE
    for invariant in row.value_invariants:
        left, _, right = _parts(invariant)
        known = names.keys() | _NUMPY.keys()
        if {*left.co_names, *right.co_names} <= known and not holds(invariant, names, tolerance):
            return invariant
    return None


def _wide(value: Any) -> Any:
    """Arrays of floats in float64, so that no sum over them rounds."""
    if not hasattr(value, "dtype"):
        return value
    array: NDArray[Any] = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _value(code: CodeType, names: Mapping[str, Any]) -> NDArray[np.float64]:
    return np.asarray(eval(code, _NUMPY, dict(names)), np.float64)


def _magnitude(value: Any) -> float:
    """The largest of an array; an attribute counts for nothing."""
    if not isinstance(value, np.ndarray):
        return 0.0
    magnitudes = np.abs(np.asarray(value, np.float64))
    return float(magnitudes.max(initial=0, where=np.isfinite(magnitudes)))


@cache
def _parts(invariant: str) -> tuple[CodeType, str, CodeType]:
    left, relation, right = re.split(r"(<=|>=|==)", invariant)
    return compile(left.strip(), invariant, "eval"), relation, compile(right.strip(), invariant, "eval")
