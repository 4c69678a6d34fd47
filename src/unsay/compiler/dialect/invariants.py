"""Value invariants of the table on numbers: `sum(p, axis=-1) == 1` over arrays by name.

An invariant is one comparison (<=, >= or ==) of expressions over operands, results, attributes and what the row's doc
defines, with mean, sum, min, max and abs of NumPy. It is true up to rounding, for every finite input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

_NUMPY = {"__builtins__": {}, "mean": np.mean, "sum": np.sum, "min": np.min, "max": np.max, "abs": np.abs}


def holds(invariant: str, names: Mapping[str, Any], tolerance: float = 1e-5) -> bool:
    """Whether it is true up to `tolerance` of the largest magnitude there is, and at least of 1; nan never is."""
    left_code, relation, right_code = _parts(invariant)
    left, right = (np.asarray(eval(code, _NUMPY, dict(names)), np.float64) for code in (left_code, right_code))
    arrays = [np.abs(value.astype(np.float64)) for value in names.values() if isinstance(value, np.ndarray)]
    slack = tolerance * max(1.0, *(float(array.max(initial=0, where=np.isfinite(array))) for array in arrays))
    if relation == "==":
        return bool(np.all(np.abs(left - right) <= slack))
    low, high = (left, right) if relation == "<=" else (right, left)
    return bool(np.all(low <= high + slack))


@cache
def _parts(invariant: str) -> tuple[CodeType, str, CodeType]:
    left, relation, right = re.split(r"(<=|>=|==)", invariant)
    return compile(left.strip(), invariant, "eval"), relation, compile(right.strip(), invariant, "eval")
