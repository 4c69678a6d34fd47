"""Exact dots of int8 with integers of 15 bits (N9, int8), four products of a sum at a time.

A register of data has in each i32 lane four bytes of that lane's sum. What they are multiplied with is the same for
every lane, and is made once, as two i32 words for each four:

    pairs     x86, wasm: multipliers of bytes 0 and 2, then of 1 and 3, as i16; the bytes are widened by shifts, and
              vpmaddwd (i32x4.dot) adds two products to a lane
    planes    AArch64: four bytes each, multiplier = low + 128 * high; sdot adds four products to a lane, of a sum for
              low and one for high
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from unsay.compiler.codegen.builder import I8, I16, I32, I32X16, Function, Slot, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit

MOST = 16256
"""The largest multiplier: 127 * 128."""

_PAIRS = [4 * quad + place for quad in range(4) for place in (0, 2, 1, 3)]
_PLANES = [4 * quad + place + 16 * plane for quad in range(4) for plane in (0, 1) for place in range(4)]

Sums: TypeAlias = list[list[list[Slot]]]
"""By register of data and multiplier: one sum, or of planes two."""


@dataclass(frozen=True, slots=True)
class LongDot:
    """The dots of a unit, written into a function."""

    f: Function
    unit: DotUnit

    def words(self, x: Value) -> Value:
        """16 f32 of at most MOST, rounded, as the words they are multiplied as: <32 x i8>."""
        integers = self.f.unary("roundeven", x).cast("fptosi", I32X16)
        if not self._has_planes:
            return integers.cast("trunc", vector(I16, 16)).shuffle(_PAIRS).cast("bitcast", vector(I8, 32))
        high = self.f.shifted_right(integers + 64, 7)
        return (integers - (high << 7)).beside(high).cast("trunc", vector(I8, 32)).shuffle(_PLANES)

    def sums(self, num_registers: int, num_multipliers: int) -> Sums:
        """Zeros."""
        kind, planes = vector(I32, self.unit.lanes), range(2 if self._has_planes else 1)
        return [[[self.f.slot(kind, 0) for _ in planes] for _ in range(num_multipliers)] for _ in range(num_registers)]

    def add(self, sums: Sums, data: Sequence[Value], words: Sequence[Value]) -> None:
        """Add the dots of each register at `data` and the two words at each of `words`.

        Registers are widened first, then each word is loaded once: so all fits 16 registers.
        """
        f, lanes = self.f, self.unit.lanes
        factors = [self._factors(f.load(vector(I32, lanes), address, align=4)) for address in data]
        for multiplier, address in enumerate(words):
            pair = [f.load(I32, address.at(4 * place), align=4).splat(lanes) for place in (0, 1)]
            for of_register, both in zip(sums, factors, strict=True):
                slots = of_register[multiplier]
                for place in (0, 1):
                    total = slots[place % len(slots)]
                    total.set(self._added(total.get(), both[place], pair[place]))

    def totals(self, sums: Sums) -> list[list[Value]]:
        """The dots, by register and multiplier."""
        return [[self._total(slots) for slots in of_register] for of_register in sums]

    @property
    def _has_planes(self) -> bool:
        return self.unit.architecture == "aarch64"

    def _total(self, slots: Sequence[Slot]) -> Value:
        low, *high = (slot.get() for slot in slots)
        return (high[0] << 7) + low if high else low

    def _factors(self, data: Value) -> tuple[Value, Value]:
        """What the two words are multiplied with: bytes 0 and 2 of every lane as i16, then 1 and 3; or all bytes."""
        if self._has_planes:
            return data, data
        halves = data.cast("bitcast", vector(I16, 2 * self.unit.lanes))
        return self.f.shifted_right(halves << 8, 8), self.f.shifted_right(halves, 8)

    def _added(self, total: Value, data: Value, word: Value) -> Value:
        if self._has_planes:
            bytes_ = (factor.cast("bitcast", vector(I8, 16)) for factor in (data, word))
            return self.f.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, *bytes_)
        return total + self._pair_dots(data, word.cast("bitcast", data.type))

    def _pair_dots(self, a: Value, b: Value) -> Value:
        """Sums of two products of neighbours. AVX-512 without its instructions: the two halves."""
        f, kind = self.f, vector(I32, self.unit.lanes)
        if self.unit.architecture == "wasm":
            return f.intrinsic("llvm.wasm.dot", kind, a, b)
        if self.unit.vector_bytes == 32:
            return f.intrinsic("llvm.x86.avx2.pmadd.wd", kind, a, b)
        if not self.unit.emulated:
            return f.intrinsic("llvm.x86.avx512.pmaddw.d.512", kind, a, b)
        low, high = ((a.shuffle(half), b.shuffle(half)) for half in (range(16), range(16, 32)))
        halves = [f.intrinsic("llvm.x86.avx2.pmadd.wd", vector(I32, 8), *pair) for pair in (low, high)]
        return halves[0].beside(halves[1])
