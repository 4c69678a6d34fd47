"""Whole rows of output, among them Q16 (N14): a row of activations as integers with one scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F32, F32X16, I16, I32X16, Function, Value, vector
from unsay.compiler.codegen.kernels.vector import LANES, Output, largest, maximum
from unsay.isa.formats import DType, whole_most

_SMALLEST = 2.0**-100


@dataclass(frozen=True, slots=True)
class WholeRows:
    """A Q16 tensor in memory: q i16 [capacity][width] | scale f32 [capacity]."""

    base: Value
    capacity: int
    width: int

    def q(self, row: Value) -> Value:
        """Address of a row's integers."""
        return self.base.at(row * (self.width * 2))

    def scale(self, row: Value) -> Value:
        """Address of a row's scale."""
        return self.base.at(row * 4 + self.capacity * self.width * 2)

    def store(self, f: Function, row: Value, values: Callable[[Value], Value]) -> None:
        """N14 of a row. values: 16 columns from one on; asked for twice each."""
        peak = f.slot(F32X16, 0.0)
        with f.loop("column", 0, self.width, LANES) as column:
            peak.set(maximum(f, f.unary("fabs", values(column)), peak.get()))
        amax, zero = largest(f, peak.get()), f.constant(F32, 0.0)
        most, empty = f.constant(F32, whole_most(self.width)), amax.compare("olt", _SMALLEST)
        inverse = f.select(empty, zero, most / amax).splat(LANES)
        f.store(f.select(empty, zero, amax / most), self.scale(row), align=4)
        with f.loop("column", 0, self.width, LANES) as column:
            q = f.unary("roundeven", values(column) * inverse).cast("fptosi", I32X16)
            f.store(q.cast("trunc", vector(I16, LANES)), self.q(row).at(column * 2), align=2)


def store_row(f: Function, out: Output, row: Value, values: Callable[[Value], Value]) -> None:
    """A whole row of any type of output. values: as in WholeRows.store."""
    if out.dtype is DType.Q16:
        WholeRows(out.base, out.capacity, out.width).store(f, row, values)
        return
    with f.loop("column", 0, out.width, out.step) as column:
        out.store(f, row, column, [values(column + start) for start in range(0, out.step, LANES)])
