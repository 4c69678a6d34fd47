"""exp, log and sums in float64 that give the same bits on every CPU.

np.exp, np.log and np.sum pick their code by CPU and differ in the last bit; a token chosen by such a bit would differ
between machines. Here everything is +, -, *, / and integer work on the exponent, which IEEE-754 fixes exactly. The
error is below 2 units in the last place, tested against the decimal module.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float64Array: TypeAlias = NDArray[np.float64]

_LN2_HIGH = 6.93147180369123816490e-01
"""ln 2 to 32 bits (fdlibm): n * _LN2_HIGH is exact for |n| < 2^20."""
_LN2_LOW = 1.90821492927058770002e-10
_LOG2_E = 1.44269504088896338700
_SQRT_2 = 1.41421356237309514547
_MANTISSA_BITS = 52
_EXPONENT_BIAS = 1023
_ONE_BITS = np.int64(_EXPONENT_BIAS << _MANTISSA_BITS)
_MANTISSA_MASK = np.int64((1 << _MANTISSA_BITS) - 1)

_EXP_COEFFICIENTS = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
"""exp(r) = 1 + 2r / (2 - c(r)), c(r) = r - r^2 P(r^2). Source: fdlibm, e_exp.c."""

_LOG_COEFFICIENTS = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
"""log(1+f) = 2s + s R(s^2), s = f / (2 + f). Source: fdlibm, e_log.c."""

EXP_UNDERFLOW = -700.0
"""Below this, `exp` returns 0; above +700 it is not defined."""


def exp(x: Float64Array) -> Float64Array:
    """e^x for finite x <= 700; 0 below -700. Shape as given."""
    assert not x.size or float(x.max()) <= -EXP_UNDERFLOW, float(x.max())
    clipped = np.maximum(x, EXP_UNDERFLOW)
    n = np.rint(clipped * _LOG2_E)
    high = clipped - n * _LN2_HIGH
    low = n * _LN2_LOW
    r = high - low
    square = r * r
    c = r - square * _horner(_EXP_COEFFICIENTS, square)
    y = 1.0 - ((low - (r * c) / (2.0 - c)) - high)
    return np.where(x < EXP_UNDERFLOW, 0.0, y * _power_of_two(n))


def log(x: Float64Array) -> Float64Array:
    """Natural logarithm of positive, normal x. Shape as given."""
    assert not x.size or float(x.min()) >= np.finfo(np.float64).tiny, float(x.min())
    bits = x.view(np.int64)
    exponent = (bits >> _MANTISSA_BITS) - _EXPONENT_BIAS
    mantissa = ((bits & _MANTISSA_MASK) | _ONE_BITS).view(np.float64)
    is_upper = mantissa > _SQRT_2
    f = np.where(is_upper, mantissa * 0.5, mantissa) - 1.0
    k = (exponent + is_upper).astype(np.float64)
    s = f / (2.0 + f)
    square = s * s
    half = 0.5 * f * f
    remainder = square * _horner(_LOG_COEFFICIENTS, square)
    return k * _LN2_HIGH - ((half - (s * (half + remainder) + k * _LN2_LOW)) - f)


def running_sum(x: Float64Array) -> Float64Array:
    """Sums of x[0..i], added one after the other, for each i."""
    return np.cumsum(x)


def _horner(coefficients: tuple[float, ...], x: Float64Array) -> Float64Array:
    """c0 + x (c1 + x (c2 + ...))."""
    value = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = coefficient + x * value
    return value


def _power_of_two(n: Float64Array) -> Float64Array:
    """2^n for integers n in -1022..1023."""
    return ((n.astype(np.int64) + _EXPONENT_BIAS) << _MANTISSA_BITS).view(np.float64)
