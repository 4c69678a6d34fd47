"""The rope table: cos and sin of pos * base^(-2i/D), without libm (docs/numerics.md N8), the same bits everywhere.

An angle is held as a fraction of a whole turn, in 64 bits, so that reducing it is integer multiplication that wraps:

    turn(i)    = base^(-2i/D) / (2 pi)             decimal, 60 digits, then rounded to 96 binary places
    u(pos, i)  = pos * turn(i) mod 1               exact to 2^-63 for pos < 2^32
    quadrant   = the nearest quarter turn to u; r = u - quadrant, at most an eighth of a turn either way
    cos, sin   = Taylor polynomials of 2 pi r in float64, truncated below 2^-56, swapped and negated by quadrant

Only +, -, * of float64 and integers are used, so every machine agrees. The result, rounded to float32, is within half a
unit in the last place and 2^-20 of one.
"""

from __future__ import annotations

from decimal import Context, Decimal
from math import factorial

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array

_DECIMAL = Context(prec=60)
_TWO_PI = Decimal("6.28318530717958647692528676655900576839433879875021164194988918")
_RADIANS = float(_DECIMAL.divide(_TWO_PI, 1 << 64))
_EIGHTH = np.uint64(1 << 61)
_SIN = tuple((-1) ** n / factorial(2 * n + 1) for n in range(9))
_COS = tuple((-1) ** n / factorial(2 * n) for n in range(9))


def rope_rows(positions: range, head_dim: int, base: float) -> Float32Array:
    """cos and sin for these positions: f32 [len(positions)][D/2][2]."""
    cos, sin = cos_sin(turns(positions, head_dim, base))
    return np.stack([cos, sin], axis=-1).astype(np.float32)


def turns(positions: range, head_dim: int, base: float) -> NDArray[np.uint64]:
    """Angles in units of 2^-64 turn, whole turns dropped: [len(positions), D/2]."""
    fixed = [_turn(pair, head_dim, base) for pair in range(head_dim // 2)]
    high = np.array([value >> 32 & 0xFFFF_FFFF_FFFF_FFFF for value in fixed], np.uint64)
    low = np.array([value & 0xFFFF_FFFF for value in fixed], np.uint64)
    position = np.arange(positions.start, positions.stop, dtype=np.uint64)[:, None]
    return position * high + (position * low >> np.uint64(32))


def cos_sin(turn: NDArray[np.uint64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosine and sine of angles in units of 2^-64 turn."""
    quadrant = (turn + _EIGHTH) >> np.uint64(62)
    rest = (turn - (quadrant << np.uint64(62))).view(np.int64)
    x = rest.astype(np.float64) * _RADIANS
    square = x * x
    cos, sin = _horner(_COS, square), x * _horner(_SIN, square)
    odd = (quadrant & np.uint64(1)).astype(bool)
    even_cos, even_sin = np.where(odd, -sin, cos), np.where(odd, cos, sin)
    half = (quadrant & np.uint64(2)).astype(bool)
    return np.where(half, -even_cos, even_cos), np.where(half, -even_sin, even_sin)


def _turn(pair: int, head_dim: int, base: float) -> int:
    """Turns per position of pair i, in units of 2^-96."""
    exponent = _DECIMAL.divide(Decimal(-2 * pair), Decimal(head_dim))
    frequency = _DECIMAL.power(Decimal(base), exponent)
    return int(_DECIMAL.multiply(_DECIMAL.divide(frequency, _TWO_PI), 1 << 96))


def _horner(coefficients: tuple[float, ...], square: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.full_like(square, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * square + coefficient
    return total
