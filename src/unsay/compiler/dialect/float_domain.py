"""FLOAT, the NumPy floats (dialect/domains.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from unsay.compiler.dialect.domain import CONCRETE, Array, Domain, Number, from_bits, is_concrete
from unsay.isa.formats import QUANT_BLOCK, WIDE_FACTOR, DType


class FloatDomain(Domain):
    """NumPy floats. f64 is computed in f64, all else in f32."""

    def enter(self, array: Array, dtype: DType) -> Array:
        if dtype in CONCRETE:
            return np.asarray(array).astype(CONCRETE[dtype])
        array = from_bits(array) if dtype is DType.BF16 else array
        return self.round(np.asarray(array, np.float64 if dtype is DType.F64 else np.float32), dtype)

    def lift(self, array: Array) -> Array:
        return np.asarray(array, np.float32)

    def leave(self, array: Array, dtype: DType) -> Array:
        return array.astype(np.float16) if dtype is DType.F16 else array

    def cast(self, x: Array, dtype: DType) -> Array:
        if dtype in CONCRETE:
            return x.astype(CONCRETE[dtype]) if is_concrete(x) else self.to_concrete(x, dtype)
        return self.round(x.astype(np.float64 if dtype is DType.F64 else np.float32), dtype)

    def to_concrete(self, x: Array, dtype: DType) -> Array:
        return x != 0 if dtype is DType.BOOL else np.trunc(x).astype(CONCRETE[dtype])

    def round(self, x: Array, dtype: DType) -> Array:
        if dtype is DType.F16:
            return x.astype(np.float16).astype(np.float32)
        return round_bf16(x) if dtype is DType.BF16 else x

    def apply(self, function: str, x: Array) -> Array:
        return np.asarray(_FLOAT_FUNCTIONS[function](x), x.dtype)

    def maximum(self, a: Number, b: Number) -> Array:
        return np.maximum(*self._pair(a, b))

    def minimum(self, a: Number, b: Number) -> Array:
        return np.minimum(*self._pair(a, b))

    def extreme(self, relation: str, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
        return np.asarray((np.max if relation == "greater" else np.min)(x, axis=axes, keepdims=keepdims))

    def _like(self, number: float, x: Array) -> Array:
        return np.asarray(number, x.dtype)


def round_bf16(x: Array) -> Array:
    """f32 rounded to the nearest bf16, ties to even, as f32; nan stays nan."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def _round_blocks(x: Array, wide: bool) -> Array:
    """x quantised and back (docs/numerics.md N3, N3w): what a quantised product reads."""
    blocks = x.reshape(*x.shape[:-1], -1, QUANT_BLOCK)
    magnitude = np.abs(blocks)
    amax = magnitude.max(-1, keepdims=True)
    is_wide = (WIDE_FACTOR * amax > magnitude.sum(-1, keepdims=True)) & wide
    scale = amax / np.where(is_wide, 16256, 127).astype(x.dtype)
    whole = np.round(np.divide(blocks, scale, out=np.zeros_like(blocks), where=amax >= 2.0**-100))
    return (whole * scale).reshape(x.shape)


_FLOAT_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "floor": np.floor,
    "erf": lambda x: np.frompyfunc(math.erf, 1, 1)(x),
    "round_q8a": lambda x: _round_blocks(x, wide=False),
    "round_q8w": lambda x: _round_blocks(x, wide=True),
}  # fmt: skip


FLOAT = FloatDomain()
