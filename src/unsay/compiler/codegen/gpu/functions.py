"""Pieces of GPU kernels: rules of docs/numerics.md, and where things are in the memory of isa/formats.py."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsay.compiler.codegen.gpu.lanes import (
    F32,
    Expr,
    Kernel,
    Memory,
    as_f32,
    choose,
    constant,
    fma,
    half,
    round_even,
    to_i32,
)
from unsay.isa.formats import QUANT_BLOCK, ROW_GROUP, DType

LANES = 64
"""Of a group, in kernels that have a lane for each output."""

SUM_LANES = 16
"""N1: partial sums of a horizontal sum."""


def name_of(value: float) -> str:
    """An f32 as part of a name: 1em05, 0d125."""
    return str(np.float32(value)).replace("-", "m").replace("+", "").replace(".", "d")


def tree_sum(k: Kernel, lanes: list[Expr]) -> Expr:
    """N1, the second half: lane[j] += lane[j + h] for h = 8, 4, 2, 1 over 16 partial sums."""
    assert len(lanes) == SUM_LANES, len(lanes)
    while len(lanes) > 1:
        half_way = len(lanes) // 2
        lanes = [k.let("s", low + high) for low, high in zip(lanes[:half_way], lanes[half_way:], strict=True)]
    return lanes[0]


def exp(k: Kernel, x: Expr) -> Expr:
    """N2."""
    x = k.let("x", choose(x > 88.0, 88.0, x))
    tiny = k.let("tiny", x < -87.33)
    n = k.let("n", round_even(choose(tiny, 0.0, x) * 1.44269504088896341))
    r = k.let("r", fma(n, -0.693359375, x))
    r = k.let("r", fma(n, 2.12194440e-4, r))
    p = k.let("p", constant(F32, 1.9875691500e-4))
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = k.let("p", fma(p, r, coefficient))
    y = k.let("y", fma(p, r * r, r) + 1.0)
    return k.let("e", choose(tiny, 0.0, y * as_f32((to_i32(n) + 127) << 23)))


def float_element(k: Kernel, dtype: DType, w: Memory, width: int, row: Expr, column: Expr) -> Expr:
    """Element of a packed F32, F16 or BF16 matrix, exactly."""
    element = k.let("element", (row // ROW_GROUP * width + column) * ROW_GROUP + row % ROW_GROUP)
    if dtype is DType.F32:
        return w[element]
    word = w[element >> 1]
    return half(word, element & 1) if dtype is DType.F16 else as_f32((word >> ((element & 1) << 4)) << 16)


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Where the words of a row of a Q8A or Q8W tensor with room for `capacity` rows of `blocks` are:

    lo [capacity][blocks][8] | scale [capacity][blocks] | sum | hi [capacity][blocks][8] | wide      the last two of Q8W
    """

    capacity: int
    blocks: int
    row: Expr

    def lo(self, b: Expr) -> Expr:
        """The 8 words of a block."""
        return (self.row * self.blocks + b) * (QUANT_BLOCK // 4)

    def scale(self, b: Expr) -> Expr:
        """Its scale, f32."""
        return self._side(8) + b

    def sum(self, b: Expr) -> Expr:
        """Its sum, i32."""
        return self._side(9) + b

    def hi(self, b: Expr) -> Expr:
        """The 8 words of its high plane."""
        return self.lo(b) + self._room * 10

    def wide(self, b: Expr) -> Expr:
        """Whether it is wide, i32."""
        return self._side(18) + b

    @property
    def _room(self) -> int:
        """Words of a plane that has one word a block."""
        return self.capacity * self.blocks

    def _side(self, planes_before: int) -> Expr:
        return self.row * self.blocks + self._room * planes_before
