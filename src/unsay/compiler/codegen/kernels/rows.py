"""Whole rows of output, among them Q16 and Q16P (N14): a row of activations as integers with one scale.

Also the parts of a row, which the products that read them sum apart (N15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F32, F32X16, I8, I16, I32X16, I64, Function, Value, vector
from unsay.compiler.codegen.kernels.vector import LANES, Output, largest, maximum
from unsay.isa.formats import PART_COLUMNS, WHOLE_ACTIVATIONS, WHOLE_MOST, DType

_SMALLEST = 2.0**-100


@dataclass(frozen=True, slots=True)
class WholeRows:
    """A Q16 or Q16P tensor in memory: q i16 [capacity][width], or hi and lo int8 like it | scale f32 [capacity]."""

    base: Value
    dtype: DType
    capacity: int
    width: int

    def plane(self, row: Value, number: int = 0) -> Value:
        """Address of a row's integers; of Q16P, 0 is hi and 1 is lo."""
        return self.base.at(row * (self.width * self._element_bytes) + number * self.capacity * self.width)

    def scale(self, row: Value) -> Value:
        """Address of a row's scale."""
        return self.base.at(row * 4 + self.capacity * self.width * 2)

    def store(self, f: Function, row: Value, values: Callable[[Value], Value]) -> None:
        """N14 of a row. values: 16 columns from one on; asked for twice each."""
        peak = f.slot(F32X16, 0.0)
        with f.loop("column", 0, self.width, LANES) as column:
            peak.set(maximum(f, f.unary("fabs", values(column)), peak.get()))
        amax, zero = largest(f, peak.get()), f.constant(F32, 0.0)
        most, empty = f.constant(F32, WHOLE_MOST), amax.compare("olt", _SMALLEST)
        inverse = f.select(empty, zero, most / amax).splat(LANES)
        f.store(f.select(empty, zero, amax / most), self.scale(row), align=4)
        with f.loop("column", 0, self.width, LANES) as column:
            q = f.unary("roundeven", values(column) * inverse).cast("fptosi", I32X16)
            kind, planes = (I16, [q]) if self.dtype is DType.Q16 else (I8, [f.shifted_right(q, 7), q & 127])
            for number, plane in enumerate(planes):
                place = self.plane(row, number).at(column * self._element_bytes)
                f.store(plane.cast("trunc", vector(kind, LANES)), place, align=self._element_bytes)

    @property
    def _element_bytes(self) -> int:
        return 2 if self.dtype is DType.Q16 else 1


def parts(f: Function, width: int) -> Iterator[tuple[Value, int]]:
    """The number of each part of a row so wide, and its columns; the full ones inside of a loop."""
    full, rest = divmod(width, PART_COLUMNS)
    if full:
        with f.loop("part", 0, full) as part:
            yield part, PART_COLUMNS
    if rest:
        yield f.constant(I64, full), rest


def store_row(f: Function, out: Output, row: Value, values: Callable[[Value], Value]) -> None:
    """A whole row of any type of output. values: as in WholeRows.store."""
    if out.dtype in WHOLE_ACTIVATIONS:
        WholeRows(out.base, out.dtype, out.capacity, out.width).store(f, row, values)
        return
    with f.loop("column", 0, out.width, out.step) as column:
        out.store(f, row, column, [values(column + start) for start in range(0, out.step, LANES)])
