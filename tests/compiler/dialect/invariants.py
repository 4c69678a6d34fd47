"""Value invariants of the table, evaluated with NumPy."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_TOLERANCE = 1e-5
_NUMPY = {"mean": np.mean, "sum": np.sum, "min": np.min, "max": np.max, "abs": np.abs}


def holds(invariant: str, names: Mapping[str, Any]) -> bool:
    """Evaluate a comparison up to rounding, relative to the largest value."""
    sign = next(sign for sign in ("<=", ">=", "==") if sign in invariant)
    left, right = (eval(side.strip(), {"__builtins__": {}}, {**_NUMPY, **names}) for side in invariant.split(sign))
    slack = _TOLERANCE * max(
        1.0, *(float(np.abs(value.astype(float)).max()) for value in names.values() if isinstance(value, np.ndarray))
    )
    if sign == "==":
        return bool(np.all(np.abs(left - right) <= slack))
    low, high = (left, right) if sign == "<=" else (right, left)
    return bool(np.all(low <= high + slack))
