"""Shared pieces of the kernels, each the emission of one rule of docs/numerics.md (named N1, N2 ...).

Every kernel is `void kernel(ptr args, i64 thread, i64 threads, i64 count, ptr ...)`: args is StepArgs, count the rows
(tokens or logit rows) of this step, and the kernel does its thread's share.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from unsay.compiler.codegen.builder import (
    BOOL,
    F16X16,
    F32,
    F32X16,
    I8,
    I32,
    I32X16,
    I64,
    PTR,
    Function,
    Value,
    vector,
    with_element,
)
from unsay.compiler.codegen.kernels.wide import BlockPlace, store_wide_block
from unsay.isa.abi import StepArgs
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_ACTIVATIONS, DType

LANES = 16

REPEATED_ROWS = 2
"""Small work on so few rows takes less time than threads take to meet: every thread does all of it for itself, to the
same place and with the same bytes, and reads after that what it has written itself."""

MOST_SHARES = 4
"""Shares of units that a thread takes part in, its own among them."""


def kernel_parameters(*pointers: str) -> list[tuple[str, str]]:
    """The parameters of a kernel that takes these pointers."""
    return [(PTR, "args"), (I64, "thread"), (I64, "threads"), (I64, "count"), *((PTR, name) for name in pointers)]


def argument(f: Function, name: str) -> Value:
    """A pointer of StepArgs."""
    return f.load(PTR, f["args"].at(getattr(StepArgs, name).offset), align=8)


def index_at(f: Function, array: Value, index: Value) -> Value:
    """array[index] of an i32 array, as i64."""
    return f.load(I32, array.at(index * 4), align=4).cast("sext", I64)


def leave_if_interrupted(f: Function) -> None:
    """Return from the kernel if the interrupt word is set."""
    f.return_if(f.call("interrupted", BOOL, f["args"]))


def share(f: Function, num_units: Value | int, thread: Value | None = None) -> tuple[Value, Value]:
    """[begin, end) of this thread, or of another, when units are dealt out in contiguous runs."""
    units, thread = f.operand(I64, num_units), thread or f["thread"]
    return units * thread // f["threads"], units * (thread + 1) // f["threads"]


def share_or_all(f: Function, num_units: Value | int) -> tuple[Value, Value]:
    """The same, and in a step of up to REPEATED_ROWS rows all of them."""
    begin, end = share(f, num_units)
    is_repeated = f["count"].compare("sle", REPEATED_ROWS)
    return f.select(is_repeated, f.constant(I64, 0), begin), f.select(is_repeated, f.operand(I64, num_units), end)


@contextmanager
def dealt(f: Function, num_units: Value) -> Generator[Value]:
    """Units of work, given to the threads as they ask for them: who is slower does fewer. Leaves the kernel after the
    last. For one kernel between two barriers, the same units for all threads."""
    with f.loop("turn", 0, num_units):
        unit = f.call("deal", I64, f["args"], f.constant(I64, 0), f.constant(I64, 1))
        f.return_if(unit.compare("sge", num_units))
        yield unit


@contextmanager
def taken(f: Function, num_units: int, is_last: Value | None = None) -> Generator[tuple[Value, Value]]:
    """(unit, end of the share it is of): of this thread's share, then what is left of the shares of a few others: who
    is slower does fewer. Leaves the kernel after the last. For one kernel between two barriers.

    is_last: false where the kernel comes here again before it ends; then there are the units of the share alone.
    """
    own_begin, own_end = share(f, num_units)
    one, turns = f.constant(I64, 1), f.constant(I64, num_units + MOST_SHARES)
    done = f.slot(I64, 0)
    with f.loop("turn", 0, turns if is_last is None else f.select(is_last, turns, own_end - own_begin)) as turn:
        owner = (f["thread"] + done.get()) % f["threads"]
        begin, end = share(f, num_units, owner)
        number = f.call("deal", I64, f["args"], owner, one if is_last is None else is_last.cast("zext", I64))
        number = number if is_last is None else f.select(is_last, number, turn)
        is_left = number.compare("slt", end - begin)
        with f.when(is_left):
            yield begin + number, end
        done.set(f.select(is_left, done.get(), done.get() + 1))
        f.return_if(done.get().compare("sge", f.smaller(f["threads"], MOST_SHARES)))


@dataclass(frozen=True, slots=True)
class Quantised:
    """A Q8A or Q8W tensor in memory: lo int8 [capacity][K] | scale f32 [capacity][K/32] | sum i32 [capacity][K/32],
    and of Q8W hi int8 [capacity][K] | wide i32 [capacity][K/32]. The q of Q8A is lo."""

    base: Value
    capacity: int
    width: int

    def lo(self, row: Value) -> Value:
        """Address of a row's bytes."""
        return self.base.at(row * self.width)

    def scale(self, row: Value) -> Value:
        """Address of a row's scales."""
        return self.base.at(row * (self.width // 8) + self.capacity * self.width)

    def sum(self, row: Value) -> Value:
        """Address of a row's sums."""
        return self.base.at(row * (self.width // 8) + self.capacity * (self.width + self.width // 8))

    def hi(self, row: Value) -> Value:
        """Address of a row's high bytes."""
        return self.base.at(row * self.width + self.capacity * (self.width + self.width // 4))

    def wide(self, row: Value) -> Value:
        """Address of a row's flags."""
        return self.base.at(row * (self.width // 8) + self.capacity * (2 * self.width + self.width // 4))


def load_floats(f: Function, dtype: DType, address: Value) -> Value:
    """16 elements of F32, F16 or BF16 memory as <16 x float>, exactly."""
    if dtype is DType.F32:
        return f.load(F32X16, address, align=4)
    if dtype is DType.F16:
        return f.load(F16X16, address, align=2).cast("fpext", F32X16)
    bits = f.load(vector("i16", LANES), address, align=2).cast("zext", I32X16)
    return (bits << 16).cast("bitcast", F32X16)


def splat_load(f: Function, address: Value) -> Value:
    """One f32 of memory in all 16 lanes."""
    return f.load(F32, address, align=4).splat(LANES)


def maximum(f: Function, a: Value, b: Value) -> Value:
    """The larger, lane by lane."""
    return f.select(a.compare("ogt", b), a, b)


def tree_sum(x: Value) -> Value:
    """N1, the second half: lane[j] += lane[j + h] for h = 8, 4, 2, 1; the scalar sum."""
    for half in (8, 4, 2, 1):
        x = x.shuffle(range(half)) + x.shuffle(range(half, 2 * half))
    return x.lane(0)


def largest(f: Function, x: Value) -> Value:
    """The largest lane, as a scalar."""
    for half in (8, 4, 2, 1):
        x = maximum(f, x.shuffle(range(half)), x.shuffle(range(half, 2 * half)))
    return x.lane(0)


def exp(f: Function, x: Value) -> Value:
    """N2, for f32 or a vector of them. What is to give 0 is taken as -88, for which 2^n comes out as 0."""
    kind = x.type
    high, low = f.constant(kind, 88.0), f.constant(kind, -88.0)
    x = f.select(x.compare("ogt", high), high, x)
    x = f.select(x.compare("olt", -87.33), low, x)
    n = f.unary("roundeven", x * 1.44269504088896341)
    r = f.fma(n, -0.693359375, x)
    r = f.fma(n, 2.12194440e-4, r)
    p = f.constant(kind, 1.9875691500e-4)
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = f.fma(p, r, coefficient)
    y = f.fma(p, r * r, r) + 1.0
    power = ((n.cast("fptosi", with_element(kind, I32)) + 127) << 23).cast("bitcast", kind)
    return y * power


def silu_mul(f: Function, gate: Value, up: Value) -> Value:
    """N10: (g / (1 + exp(-g))) * u."""
    return (gate / (exp(f, -gate) + 1.0)) * up


def block_maximum(f: Function, low: Value, high: Value) -> Value:
    """The largest magnitude of the 32 values in two vectors."""
    return largest(f, maximum(f, f.unary("fabs", low), f.unary("fabs", high)))


def block_sum(f: Function, low: Value, high: Value) -> Value:
    """sum16 of the magnitudes of the 32 values in two vectors."""
    return tree_sum(f.unary("fabs", low) + f.unary("fabs", high))


def store_quantised_block(f: Function, low: Value, high: Value, q: Value, scale: Value, total: Value) -> None:
    """N3 of the 32 values in two vectors, to the addresses given."""
    largest_abs = block_maximum(f, low, high)
    small = largest_abs.compare("olt", 2.0**-100)
    zero = f.constant(F32, 0.0)
    inverse = f.select(small, zero, f.constant(F32, 127.0) / largest_abs).splat(LANES)
    integers = [f.unary("roundeven", half * inverse).cast("fptosi", I32X16) for half in (low, high)]
    for offset, values in enumerate(integers):
        f.store(values.cast("trunc", vector(I8, LANES)), q.at(offset * LANES))
    f.store(f.select(small, zero, largest_abs / 127.0), scale, align=4)
    f.store(f.intrinsic("llvm.vector.reduce.add.v16i32", I32, integers[0] + integers[1]), total, align=4)


@dataclass(frozen=True, slots=True)
class Output:
    """Where a kernel's rows go: F32 [capacity][width], or Q8A or Q8W of that shape."""

    base: Value
    dtype: DType
    capacity: int
    width: int

    def store(self, f: Function, row: Value, column: Value, halves: Sequence[Value]) -> None:
        """Store values of one row from `column` on: any number of vectors as F32, else pairs of them (a block)."""
        if self.dtype is DType.F32:
            start = self.base.at(row * (self.width * 4)).at(column * 4)
            for place, values in enumerate(halves):
                f.store(values, start.at(place * 64), align=4)
            return
        assert self.dtype in QUANTISED_ACTIVATIONS and len(halves) % 2 == 0, (self.dtype, len(halves))
        for place in range(0, len(halves), 2):
            self._store_block(f, row, column + place * LANES, halves[place], halves[place + 1])

    def _store_block(self, f: Function, row: Value, column: Value, low: Value, high: Value) -> None:
        packed, side = Quantised(self.base, self.capacity, self.width), column // QUANT_BLOCK * 4
        lo, scale, total = packed.lo(row).at(column), packed.scale(row).at(side), packed.sum(row).at(side)
        if self.dtype is DType.Q8A:
            store_quantised_block(f, low, high, lo, scale, total)
            return
        place = BlockPlace(lo, scale, total, packed.hi(row).at(column), packed.wide(row).at(side))
        store_wide_block(f, (low, high), block_maximum(f, low, high), block_sum(f, low, high), place)

    @property
    def step(self) -> int:
        """Columns stored at a time: a block where blocks share a scale, else a vector."""
        return LANES if self.dtype is DType.F32 else QUANT_BLOCK
