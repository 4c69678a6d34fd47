"""Integers of a kernel as bit-vectors, and what each instruction does to them.

A lane of up to 32 bits is its signed value as a 32-bit term, with bounds that hold for every input. While the exact
result of an operation lies inside the type, the term is that result; where it may not, the term wraps or saturates as
the instruction does. So saturating and wrapping arithmetic is exact arithmetic wherever the bounds show it is, and
nowhere else. Instructions of a CPU that LLVM only names are modelled here; tests compare each model with NumPy.

An equation of 8 bits is used to keep products in one form; `lemmas` states it and Z3 decides it:

    u8(w ^ -128) = w + 128                                  how s8 weights enter vpdpbusd
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unsay.compiler.verify.smt import Term, z3

WORD = 32


@dataclass(frozen=True, slots=True, eq=False)
class Lane:
    """term: the signed value, 32 bits. unsigned: the value read without sign, where that is known in a simpler form.
    parts: the bytes of a word, lowest first, where they are known better than the word."""

    term: Term
    low: int
    high: int
    unsigned: Lane | None = None
    parts: tuple[Lane, ...] | None = None


def constant(value: int, bits: int = WORD) -> Lane:
    """An integer literal of a type of so many bits, by its signed value."""
    signed = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    return Lane(z3.BitVecVal(signed, WORD), signed, signed)


def joined(parts: Sequence[Lane]) -> Lane:
    """A word of bytes, lowest first."""
    term = z3.Concat(*(z3.Extract(7, 0, part.term) for part in reversed(parts)))
    bits = 8 * len(parts)
    wide = z3.SignExt(WORD - bits, term) if bits < WORD else term
    return Lane(wide, -(1 << bits - 1), (1 << bits - 1) - 1, parts=tuple(parts))


def byte(term: Term, low: int = -128, high: int = 127) -> Lane:
    """A byte of memory, an 8-bit term, whose signed value has these bounds."""
    return Lane(z3.SignExt(WORD - 8, term), low, high)


def word(term: Term, low: int = -(1 << 31), high: int = (1 << 31) - 1) -> Lane:
    """A 32-bit term."""
    return Lane(term, low, high)


def wrapped(lane: Lane, bits: int) -> Lane:
    """What is left of a value in a type of so many bits."""
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    if least <= lane.low and lane.high <= most:
        return lane
    if bits == WORD:
        return Lane(lane.term, least, most)
    return Lane(z3.SignExt(WORD - bits, z3.Extract(bits - 1, 0, lane.term)), least, most)


def saturated(lane: Lane, bits: int) -> Lane:
    """The nearest value of a type of so many bits."""
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    if least <= lane.low and lane.high <= most:
        return lane
    low, high = z3.BitVecVal(least, WORD), z3.BitVecVal(most, WORD)
    return Lane(z3.If(lane.term < low, low, z3.If(lane.term > high, high, lane.term)), least, most)


def unsigned(lane: Lane, bits: int) -> Lane:
    """The value of the same bits read without sign."""
    if lane.unsigned is not None:
        return lane.unsigned
    if lane.low >= 0:
        return lane
    return Lane(z3.ZeroExt(WORD - bits, z3.Extract(bits - 1, 0, lane.term)), 0, (1 << bits) - 1)


def plus(left: Lane, right: Lane) -> Lane:
    """The exact sum of values that leave room for it."""
    return Lane(left.term + right.term, left.low + right.low, left.high + right.high)


def minus(left: Lane, right: Lane) -> Lane:
    """The exact difference."""
    return Lane(left.term - right.term, left.low - right.high, left.high - right.low)


def times(left: Lane, right: Lane) -> Lane:
    """The exact product."""
    ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    return Lane(left.term * right.term, min(ends), max(ends))


def binary(op: str, left: Lane, right: Lane, bits: int) -> Lane:
    """add, sub, mul, and, or, xor, shl, lshr, ashr of two lanes of so many bits."""
    match op:
        case "add":
            return wrapped(plus(left, right), bits)
        case "sub":
            return wrapped(minus(left, right), bits)
        case "mul":
            return wrapped(times(left, right), bits)
        case "shl":
            made = wrapped(times(left, constant(1 << right.low)), bits) if right.low == right.high else _any(op)
            return replace(made, parts=(constant(0), left.parts[0])) if left.parts and _by_byte(right, bits) else made
        case "ashr":
            return left.parts[1] if left.parts and _by_byte(right, bits) else _shifted_right(left, right)
        case "lshr":
            whole = unsigned(left, bits)
            by = z3.BitVecVal(right.low, WORD)
            return Lane(z3.LShR(whole.term, by), whole.low >> right.low, whole.high >> right.low)
        case "and":
            return _and(left, right, bits)
        case "xor":
            return _xor(left, right, bits)
        case "or":
            low = 0 if min(left.low, right.low) >= 0 else -(1 << bits - 1)
            return Lane(left.term | right.term, low, (1 << bits - 1) - 1)
        case _:
            return _any(op)


def _by_byte(right: Lane, bits: int) -> bool:
    """Whether words of two bytes are shifted by one of them."""
    return bits == 16 and right.low == right.high == 8


def _shifted_right(left: Lane, right: Lane) -> Lane:
    by = right.low
    return Lane(left.term >> by, left.low >> by, left.high >> by) if by == right.high else _any("ashr")


def _any(op: str) -> Lane:
    raise NotImplementedError(f"{op} of lanes")


def _and(left: Lane, right: Lane, bits: int) -> Lane:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    masks = [side.high for side in (left, right) if side.low >= 0]
    return Lane(left.term & right.term, 0 if masks else least, min(masks, default=most))


def _xor(left: Lane, right: Lane, bits: int) -> Lane:
    term, least = left.term ^ right.term, -(1 << bits - 1)
    lifted = plus(left, constant(128)) if right.low == right.high == -128 and bits == 8 else None
    return Lane(term, least, -least - 1, unsigned=lifted)


def dpbusd(total: Lane, weights: Sequence[Lane], x: Sequence[Lane]) -> Lane:
    """vpdpbusd: an i32 lane plus four products of an unsigned and a signed byte, wrapping."""
    for u, s in zip(weights, x, strict=True):
        total = wrapped(plus(total, times(unsigned(u, 8), s)), WORD)
    return total


def maddubs(weights: Sequence[Lane], x: Sequence[Lane]) -> Lane:
    """vpmaddubsw: two products of an unsigned and a signed byte, their sum saturated to 16 bits."""
    first, second = (times(unsigned(u, 8), s) for u, s in zip(weights, x, strict=True))
    return saturated(plus(first, second), 16)


def maddwd(left: Sequence[Lane], right: Sequence[Lane]) -> Lane:
    """vpmaddwd: two products of signed 16-bit values, their sum wrapped to 32 bits."""
    first, second = (times(a, b) for a, b in zip(left, right, strict=True))
    return wrapped(plus(first, second), WORD)


def sdot(total: Lane, left: Sequence[Lane], right: Sequence[Lane]) -> Lane:
    """sdot: an i32 lane plus four products of signed bytes, wrapping."""
    for a, b in zip(left, right, strict=True):
        total = wrapped(plus(total, times(a, b)), WORD)
    return total


def smmla(total: Sequence[Lane], left: Sequence[Lane], right: Sequence[Lane]) -> list[Lane]:
    """smmla: 2 rows of 8 signed bytes times 2 columns of 8, added to a 2 x 2 matrix of i32, wrapping."""
    made = list(total)
    for row in range(2):
        for column in range(2):
            for k in range(8):
                term = times(left[8 * row + k], right[8 * column + k])
                made[2 * row + column] = wrapped(plus(made[2 * row + column], term), WORD)
    return made


def total_of(lanes: Sequence[Lane]) -> Lane:
    """The wrapping sum of i32 lanes."""
    total = constant(0)
    for lane in lanes:
        total = wrapped(plus(total, lane), WORD)
    return total


def lemmas() -> list[tuple[str, Term]]:
    """The equation of the page's head, over all values."""
    w = z3.BitVec("w", 8)
    return [("u8(w ^ -128) = w + 128", z3.ZeroExt(8, w ^ -128) == z3.SignExt(8, w) + 128)]
