"""Exponents and sums of float64 arrays that give the same bits on every CPU, see portable_math.py."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.engine.portable_math import LN2_HIGH, LN2_LOW

Float64Array: TypeAlias = NDArray[np.float64]

_LOG2_E = 1.44269504088896338700
_MANTISSA_BITS = 52
_EXPONENT_BIAS = 1023

COEFFICIENTS = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
"""exp(r) = 1 + 2r / (2 - c(r)), c(r) = r - r^2 P(r^2). Source: fdlibm, e_exp.c."""

EXP_UNDERFLOW = -700.0
"""Below this, `exp` returns 0; above +700 it is not defined."""


def exp(x: Float64Array) -> Float64Array:
    """e^x for finite x <= 700; 0 below -700. Shape as given."""
    assert not x.size or float(x.max()) <= -EXP_UNDERFLOW, float(x.max())
    clipped = np.maximum(x, EXP_UNDERFLOW)
    n = np.rint(clipped * _LOG2_E)
    high = clipped - n * LN2_HIGH
    low = n * LN2_LOW
    r = high - low
    square = r * r
    c = r - square * _series(square)
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    return np.where(x < EXP_UNDERFLOW, 0.0, y * _power_of_two(n))


def running_sum(x: Float64Array) -> Float64Array:
    """Sums of x[0..i], added one after the other, for each i."""
    return np.cumsum(x)


def _series(x: Float64Array) -> Float64Array:
    """c0 + x (c1 + x (c2 + ...))."""
    value = np.full_like(x, COEFFICIENTS[-1])
    for coefficient in COEFFICIENTS[-2::-1]:
        value = coefficient + x * value
    return value


def _power_of_two(n: Float64Array) -> Float64Array:
    """2^n for integers n in -1022..1023."""
    return ((n.astype(np.int64) + _EXPONENT_BIAS) << _MANTISSA_BITS).view(np.float64)
