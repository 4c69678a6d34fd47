"""A block of 32 values quantised as narrow or wide (N3w), to its place in a Q8W tensor.

A block is narrow or wide without a branch: both divide by what their largest magnitude stands for, 127 or 16256, and
of q + 64 the bits from 7 on, times 128, go to the high plane; a mask makes that nothing for a narrow block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F32X16, I8, I32, I32X16, Function, Value, vector
from unsay.isa.formats import WIDE_FACTOR

_LANES = 16
_SMALLEST = 2.0**-100


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """Addresses of a block's 32 low and high bytes, its scale, its sum and its flag."""

    lo: Value
    scale: Value
    sum: Value
    hi: Value
    wide: Value


def store_wide_block(f: Function, halves: Sequence[Value], peak: Value, total: Value, place: BlockPlace) -> None:
    """The values in two vectors, the largest magnitude of them and the sum16 of their magnitudes, stored as N3w."""
    peaks, totals = peak.splat(_LANES), total.splat(_LANES)
    empty, zero = peaks.compare("olt", _SMALLEST), f.constant(F32X16, 0.0)
    wide = (peaks * WIDE_FACTOR).compare("ogt", totals) & peaks.compare("oge", _SMALLEST)
    most = f.select(wide, f.constant(F32X16, 16256.0), 127.0)
    inverse = f.select(empty, zero, most / peaks)
    mask = f.select(wide, f.constant(I32X16, -128), 0)
    q = [f.unary("roundeven", half * inverse).cast("fptosi", I32X16) for half in halves]
    for start, values in zip((0, _LANES), q, strict=True):
        upper = (values + 64) & mask
        f.store((upper >> 7).cast("trunc", vector(I8, _LANES)), place.hi.at(start))
        f.store((values - upper).cast("trunc", vector(I8, _LANES)), place.lo.at(start))
    f.store(f.select(empty, zero, peaks / most).lane(0), place.scale, align=4)
    f.store(f.intrinsic("llvm.vector.reduce.add.v16i32", I32, q[0] + q[1]), place.sum, align=4)
    f.store(wide.cast("zext", I32X16).lane(0), place.wide, align=4)
