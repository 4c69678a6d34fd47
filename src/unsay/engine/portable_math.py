"""The logarithm in float64 that gives the same bits on every CPU; portable_arrays.py has exponents and sums.

np.exp, np.log and np.sum pick their code by CPU and differ in the last bit, as C libraries do; a token chosen by such a
bit would differ between machines. Here everything is +, -, *, / and integer work on the exponent, which IEEE-754 fixes
exactly. The error is below 2 units in the last place, tested against the decimal module.
"""

from __future__ import annotations

import math
import sys

LN2_HIGH = 6.93147180369123816490e-01
"""ln 2 to 32 bits (fdlibm): n * LN2_HIGH is exact for |n| < 2^20."""
LN2_LOW = 1.90821492927058770002e-10
_SQRT_HALF = 0.70710678118654752440

COEFFICIENTS = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)
"""log(1+f) = 2s + s R(s^2), s = f / (2 + f). Source: fdlibm, e_log.c."""


def log(x: float) -> float:
    """Natural logarithm of a positive, normal x."""
    assert x >= sys.float_info.min, x
    mantissa, exponent = math.frexp(x)
    if mantissa <= _SQRT_HALF:
        mantissa, exponent = 2.0 * mantissa, exponent - 1
    f, k = mantissa - 1.0, float(exponent)
    s = f / (2.0 + f)
    square = s * s
    series = COEFFICIENTS[-1]
    for coefficient in COEFFICIENTS[-2::-1]:
        series = coefficient + square * series
    remainder = square * series
    half = 0.5 * f * f
    return k * LN2_HIGH - ((half - (s * (half + remainder) + k * LN2_LOW)) - f)
