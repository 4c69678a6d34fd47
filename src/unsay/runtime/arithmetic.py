"""The scalar arithmetic of docs/numerics.md in NumPy, element by element and bit for bit. N1.. are its sections.

NumPy has no fused multiply-add. In float64 the product of two f32 is exact and the sum s = a*b + c is rounded to 53
bits; rounding s again to 24 bits differs from rounding once only where s lies exactly half-way between two f32 and
the true sum does not. Those elements are rare: they are found by their low bits and redone with round-to-odd, which
keeps the information a second rounding needs (Boldo, Melquiond: Emulation of FMA and correctly rounded sums, 2008).

Callers run under `np.errstate(all="ignore")`: overflow to infinity is part of the contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array
from unsay.isa.formats import PART_COLUMNS, PART_WEIGHT_MOST, QUANT_BLOCK, WHOLE_MOST, WIDE_FACTOR

Float64Array: TypeAlias = NDArray[np.float64]
FloatLike: TypeAlias = NDArray[np.floating] | np.floating

LANES = 16
"""Canonical vector width: the number of partial sums in every horizontal sum."""

_HALFWAY_MASK = np.int64(0x1FFF_FFFF)
_HALFWAY = np.int64(0x1000_0000)
_SMALLEST_NORMAL = 2.0**-126


def f32(value: float) -> Float32Array:
    """A constant rounded to f32, as an array without dimensions."""
    return np.asarray(value, np.float32)


def fma(a: FloatLike, b: FloatLike, c: FloatLike) -> Float32Array:
    """a * b + c rounded once to f32; the values of a, b, c are f32 (in any float type), shapes broadcast."""
    return fused_sum(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float64)).astype(np.float32)


def fused_sum(product: Float64Array, addend: Float64Array) -> Float64Array:
    """product + addend such that rounding the result to f32 rounds the exact sum.

    The exact sum must have no bits below 2^-1074, which holds for products of two f32 and f32 addends.
    """
    total = product + addend
    bits = total.view(np.int64)
    at_risk = (bits & _HALFWAY_MASK) == _HALFWAY
    at_risk |= np.abs(total) < _SMALLEST_NORMAL
    if at_risk.any():
        product, addend = np.broadcast_to(product, total.shape), np.broadcast_to(addend, total.shape)
        total[at_risk] = _round_to_odd(product[at_risk], addend[at_risk])
    return total


def _round_to_odd(a: Float64Array, b: Float64Array) -> Float64Array:
    """a + b in float64; where inexact, the neighbour of the exact sum whose last bit is one."""
    total = a + b
    shadow = total - a
    error = (a - (total - shadow)) + (b - shadow)
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    away = np.where((error > 0) == (total > 0), 1, -1)
    return np.where((error != 0) & even, bits + away, bits).view(np.float64)


def tree_sum(lanes: Float32Array) -> Float32Array:
    """The fixed tree of N1 over the last axis, which has 16 lanes."""
    half = LANES // 2
    while half:
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
        half //= 2
    return lanes[..., 0]


def _in_lanes(x: Float32Array) -> Float32Array:
    """[..., n] as [n/16, ..., 16], zero filled: a zero leaves a lane, which starts at +0, as it is."""
    missing = -x.shape[-1] % LANES
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], missing), np.float32)], axis=-1)
    return np.moveaxis(padded.reshape(*x.shape[:-1], padded.shape[-1] // LANES, LANES), -2, 0)


def sum16(x: Float32Array) -> Float32Array:
    """N1: the sum over the last axis, in 16 lanes and a tree."""
    lanes = np.zeros((*x.shape[:-1], LANES), np.float32)
    for row in _in_lanes(x):
        lanes = lanes + row
    return tree_sum(lanes)


def dot16(x: Float32Array) -> Float32Array:
    """N1: the sum of squares over the last axis."""
    lanes = np.zeros((*x.shape[:-1], LANES), np.float32)
    for row in _in_lanes(x):
        lanes = fma(row, row, lanes)
    return tree_sum(lanes)


_LOG2_E = f32(1.44269504088896341)
_MINUS_LN2_HIGH = f32(-0.693359375)
_MINUS_LN2_LOW = f32(2.12194440e-4)
_EXP_MAX = f32(88.0)
_EXP_MIN = f32(-87.33)
_EXP_POLYNOMIAL = tuple(
    f32(c)
    for c in (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)


def exp(x: Float32Array) -> Float32Array:
    """N2."""
    x = np.minimum(x, _EXP_MAX)
    inside = np.where(x < _EXP_MIN, f32(0), x)
    n = np.rint(inside * _LOG2_E)
    r = fma(n, _MINUS_LN2_HIGH, inside)
    r = fma(n, _MINUS_LN2_LOW, r)
    p = np.full_like(r, _EXP_POLYNOMIAL[0])
    for coefficient in _EXP_POLYNOMIAL[1:]:
        p = fma(p, r, coefficient)
    y = fma(p, r * r, r)
    y += f32(1)
    y *= ((n.astype(np.int32) + 127) << 23).view(np.float32)
    y[x < _EXP_MIN] = 0
    return y


def silu_mul(gate: Float32Array, up: Float32Array) -> Float32Array:
    """N10: (g / (1 + exp(-g))) * u."""
    denominator = exp(-gate)
    denominator += f32(1)
    return (gate / denominator) * up


_AMAX_MIN = f32(2.0**-100)
_NARROW_MAX, _WIDE_MAX = f32(127), f32(16256)


def quantise(x: Float32Array) -> tuple[NDArray[np.int8], Float32Array, NDArray[np.int32]]:
    """N3: x [..., K] as Q8A: q int8 [..., K], scale f32 [..., K/32], sum i32 [..., K/32]."""
    blocks, amax = _blocks(x)
    q, scale = _in_steps(blocks, amax, _NARROW_MAX)
    return q.astype(np.int8).reshape(x.shape), scale, q.sum(axis=-1, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class WideBlocks:
    """Q8W: lo, hi int8 [..., K]; scale f32, total i32, wide i32 (0 or 1) [..., K/32]."""

    lo: NDArray[np.int8]
    scale: Float32Array
    total: NDArray[np.int32]
    hi: NDArray[np.int8]
    wide: NDArray[np.int32]


def quantise_wide(x: Float32Array) -> WideBlocks:
    """N3w of x [..., K]."""
    blocks, amax = _blocks(x)
    wide = (amax >= _AMAX_MIN) & (amax * f32(WIDE_FACTOR) > sum16(np.abs(blocks)))
    q, scale = _in_steps(blocks, amax, np.where(wide, _WIDE_MAX, _NARROW_MAX))
    hi = np.where(wide[..., None], (q + 64) >> 7, 0)
    lo = q - 128 * hi
    return WideBlocks(
        lo.astype(np.int8).reshape(x.shape),
        scale,
        q.sum(axis=-1, dtype=np.int32),
        hi.astype(np.int8).reshape(x.shape),
        wide.astype(np.int32),
    )


def _blocks(x: Float32Array) -> tuple[Float32Array, Float32Array]:
    """x as [..., K/32, 32], and the largest magnitude of each block."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // QUANT_BLOCK, QUANT_BLOCK)
    return blocks, np.abs(blocks).max(axis=-1)


def _in_steps(blocks: Float32Array, amax: Float32Array, most: Float32Array) -> tuple[NDArray[np.int32], Float32Array]:
    """The blocks as whole multiples, -most..most, of their scale; and the scales."""
    empty = amax < _AMAX_MIN
    scale = np.where(empty, f32(0), amax / most)
    inverse = np.where(empty, f32(0), most / amax)
    return np.rint(blocks * inverse[..., None]).astype(np.int32), scale


def quantise_rows(x: Float32Array) -> tuple[NDArray[np.int16], Float32Array]:
    """N14: x [T, K] as Q16: q int16 [T, K], scale f32 [T]."""
    q, scale = _in_steps(x, np.abs(x).max(axis=-1), f32(WHOLE_MOST))
    return q.astype(np.int16), scale


def parts(width: int) -> list[slice]:
    """N15: the columns of each part of a row."""
    return [slice(start, min(start + PART_COLUMNS, width)) for start in range(0, width, PART_COLUMNS)]


@dataclass(frozen=True, slots=True)
class PartWeights:
    """N15: v, r as whole numbers int32 [N, columns]; d, e the scales f32 [N]. r * e is what v * d left."""

    v: NDArray[np.int32]
    d: Float32Array
    r: NDArray[np.int32]
    e: Float32Array


def expand(w: Float32Array) -> PartWeights:
    """N15: weights w [N, columns] of one part."""
    most, amax = f32(PART_WEIGHT_MOST), np.abs(w).max(axis=-1)
    v, d = _in_steps(w, amax, most)
    finer = np.where(amax < _AMAX_MIN, f32(0), most / amax) * f32(2 * PART_WEIGHT_MOST)
    r = np.rint(fma(-v.astype(np.float32), d[:, None], w) * finer[:, None]).astype(np.int32)
    return PartWeights(v, d, r, d / f32(2 * PART_WEIGHT_MOST))


def rotate(x: Float32Array, cos: Float32Array, sin: Float32Array) -> Float32Array:
    """N8: pairs (2i, 2i+1) of x [..., D] turned by cos, sin [..., D/2]."""
    a, b = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = fma(a, cos, -(b * sin))
    turned[..., 1::2] = fma(b, cos, a * sin)
    return turned
