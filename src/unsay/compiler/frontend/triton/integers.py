"""Integers and bools of a kernel: index arithmetic while it is a sum, data where it is none."""

from __future__ import annotations

import numpy as np

from unsay.compiler.frontend.triton.affine import Affine, affine, axis, of
from unsay.compiler.frontend.triton.kernel import Handler, Kernel
from unsay.compiler.frontend.triton.text import Op
from unsay.compiler.frontend.triton.tiles import RefusalError, Splat, Tile
from unsay.compiler.frontend.triton.values import Abstract, Index, Mask
from unsay.isa.formats import DType

_LIMITS = {"i32": 31, "i64": 63}


def program_id(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    return Index(of(kernel.programs.ids[_grid_axis(op)]))


def num_programs(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    return Index(Affine(kernel.programs.grid[_grid_axis(op)]))


def _grid_axis(op: Op) -> int:
    position = op.integer("axis")
    if not 0 <= position < 3:
        raise RefusalError(f"axis {position} of the grid")
    return position


def make_range(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    start, end = op.integer("start"), op.integer("end")
    if op.results[0].type.shape != (end - start,):
        raise RefusalError(f"a range of {start}..{end} as {op.results[0].type}")
    return Index(Affine(start) + of(axis(0, end - start)))


def add(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    a, b = operands
    if not isinstance(a, Index) or not isinstance(b, Index):
        return kernel.apply("add", op, operands)
    return checked(op, a.value + b.value, a, b)


def subtract(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    a, b = operands
    if not isinstance(a, Index) or not isinstance(b, Index):
        return kernel.apply("sub", op, operands)
    return checked(op, a.value - b.value, a, b)


def multiply(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    a, b = operands
    if not isinstance(a, Index) or not isinstance(b, Index):
        return kernel.apply("mul", op, operands)
    if a.value.is_constant or b.value.is_constant:
        number, other = (a.value, b.value) if a.value.is_constant else (b.value, a.value)
        return checked(op, other * number.constant, a, b)
    return _for_programs(kernel, op, np.multiply, a, b) or kernel.apply("mul", op, operands)


def checked(op: Op, value: Affine, *parts: Index) -> Index:
    """Index arithmetic stays inside its type at this launch: a kernel that overflows is not what it looks like."""
    bits = _LIMITS.get(op.results[0].type.element)
    if bits is None or not -(1 << bits) <= value.low <= value.high < 1 << bits:
        raise RefusalError(f"{value} is {value.low}..{value.high}, which {op.results[0].type.element} cannot hold")
    return Index(value, tuple(dict.fromkeys(term for part in parts for term in part.below)))


def _for_programs(kernel: Kernel, op: Op, function: np.ufunc, *parts: Index) -> Index | None:
    """Worked out for every program of the launch; None if it depends on more."""
    made = kernel.programs.compute(function, *(part.value for part in parts))
    return None if made is None else checked(op, made, *parts)


def divide(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    a, by = _quotient(operands)
    whole, rest = _divided(a.value, by)
    if 0 <= rest.low <= rest.high < by:
        return checked(op, whole, a)
    return _for_programs(kernel, op, np.floor_divide, a, Index(Affine(by))) or _refuse(f"({a.value}) / {by}")


def remainder(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """What is below the divisor already is left as it is: the rest is noted in `below`."""
    a, by = _quotient(operands)
    _, rest = _divided(a.value, by)
    if 0 <= rest.low <= rest.high < by:
        return checked(op, rest, a)
    found = _for_programs(kernel, op, np.remainder, a, Index(Affine(by)))
    return found or Index(a.value, (*a.below, Affine(by - 1) - a.value))


def _quotient(operands: list[Abstract]) -> tuple[Index, int]:
    a, b = operands
    if not isinstance(a, Index) or not isinstance(b, Index) or not b.value.is_constant or b.value.constant < 1:
        raise RefusalError("a division whose divisor is not a number above 0")
    if a.value.low < 0:
        raise RefusalError(f"a division of {a.value}, which may be negative")
    return a, b.value.constant


def _divided(value: Affine, by: int) -> tuple[Affine, Affine]:
    """value = by * whole + rest, the terms that `by` divides in whole."""
    whole = [(symbol, coefficient // by) for symbol, coefficient in value.terms if coefficient % by == 0]
    quotient = affine(value.constant // by, whole)
    return quotient, value - quotient * by


def _refuse(what: str) -> Abstract:
    raise RefusalError(f"index arithmetic that is no sum: {what}")


def extreme(kind: str, function: np.ufunc) -> Handler:
    """minsi and maxsi: of numbers, of what differs between programs, or of data."""

    def handle(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
        a, b = operands
        if isinstance(a, Index) and isinstance(b, Index):
            for one, other in ((a, b), (b, a)):
                if (other.value - one.value).low >= 0:
                    return one if kind == "minimum" else other
            found = _for_programs(kernel, op, function, a, b)
            if found is not None:
                return found
        return kernel.apply(kind, op, operands)

    return handle


def compare(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    predicate, (a, b) = op.integer("predicate"), operands
    if not 0 <= predicate <= 9:
        raise RefusalError(f"a comparison with predicate {predicate}")
    if isinstance(a, Index) and isinstance(b, Index) and not a.below and not b.below:
        terms = _terms(predicate, a.value, b.value)
        if terms is not None:
            return Mask(terms)
    kinds = {0: "equal", 2: "less", 3: "less_equal", 4: "greater", 5: "greater_equal"}
    if predicate == 1:
        return kernel.tiles.apply("not", as_data(kernel.apply("equal", op, operands)))
    if predicate not in kinds:
        raise RefusalError(f"an unsigned comparison (predicate {predicate}) of data")
    return kernel.apply(kinds[predicate], op, operands)


def _terms(predicate: int, a: Affine, b: Affine) -> tuple[Affine, ...] | None:
    """A comparison as terms >= 0; unsigned ones are the same for what is never negative."""
    if predicate > 5:
        return _terms(predicate - 4, a, b) if a.low >= 0 and b.low >= 0 else None
    one = Affine(1)
    if predicate == 1:
        difference = a - b
        is_known = difference.low > 0 or difference.high < 0 or difference == Affine(0)
        return (Affine(0 if difference != Affine(0) else -1),) if is_known else None
    return ((a - b, b - a), (), (b - a - one,), (b - a,), (a - b - one,), (a - b,))[predicate]


def conjunction(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    a, b = operands
    if isinstance(a, Mask) and isinstance(b, Mask):
        return Mask(tuple(dict.fromkeys((*a.terms, *b.terms))))
    return _logical(kernel, "and", op, operands)


def disjunction(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    return _logical(kernel, "or", op, operands)


def _logical(kernel: Kernel, kind: str, op: Op, operands: list[Abstract]) -> Abstract:
    if op.results[0].type.element != "i1":
        raise RefusalError("bits of integers")
    for one, other in (operands, operands[::-1]):
        if isinstance(one, Mask) and one.known is not None:
            return other if one.known == (kind == "and") else one
    return kernel.apply(kind, op, operands)


def exclusive(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """Only with true: not"""
    for one, other in (operands, operands[::-1]):
        if op.results[0].type.element == "i1" and isinstance(one, Mask) and one.known:
            if isinstance(other, Mask) and len(other.terms) == 1:
                return Mask((other.terms[0] * -1 - Affine(1),))
            return kernel.tiles.apply("not", kernel.data(other, DType.BOOL))
    raise RefusalError("an exclusive or that is no negation")


def as_data(value: Abstract) -> Tile | Splat:
    assert isinstance(value, Tile | Splat), value
    return value
