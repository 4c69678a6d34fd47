"""Dimensions with names: ranges, formulas, and the constraints of a graph.

    graph step(B: 1..8, P: 0..2047, T: 1..512, S: 1..2559 = P + T) where T % 16 == 0, S <= 2048 { ... }

A dimension with a formula is not free: its size is that of its formula. A `Formula` is a polynomial with integer
coefficients over dimensions, in a normal form: two extents are the same exactly when their free forms, with every
formula expanded, are equal. A constraint is a promise about sizes: whoever runs the graph keeps it, rules rely on it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from unsay.errors import IrError


@dataclass(frozen=True, slots=True)
class Dim:
    """A named dimension, `low <= size <= high`; with a formula, its size is what the formula gives."""

    name: str
    low: int
    high: int
    formula: Formula | None = None


Extent: TypeAlias = int | Dim
Monomial: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class Formula:
    """A sum of `coefficient * dim * dim ...`: monomials sorted by name, no coefficient zero; () is the constant's."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Formula) -> Formula:
        return formula([*self.terms, *other.terms])

    def __mul__(self, other: Formula) -> Formula:
        return formula((a + b, m * n) for a, m in self.terms for b, n in other.terms)

    @property
    def constant(self) -> int | None:
        """The number it is, None if it has dimensions."""
        if not self.terms:
            return 0
        ((monomial, coefficient), *more) = self.terms
        return None if monomial or more else coefficient

    @property
    def dims(self) -> frozenset[Dim]:
        """The dimensions it names."""
        return frozenset(dim for monomial, _ in self.terms for dim in monomial)

    def free(self) -> Formula:
        """The same over free dimensions alone: every formula expanded."""
        if all(dim.formula is None for monomial, _ in self.terms for dim in monomial):
            return self
        total = number(0)
        for monomial, coefficient in self.terms:
            term = number(coefficient)
            for dim in monomial:
                term *= of(dim) if dim.formula is None else dim.formula.free()
            total += term
        return total

    def value(self, sizes: Mapping[str, int]) -> int:
        """What it comes to; `sizes` has every dimension it names."""
        return sum(coefficient * prod(sizes[dim.name] for dim in monomial) for monomial, coefficient in self.terms)

    def __str__(self) -> str:
        text = "".join(_term(monomial, coefficient) for monomial, coefficient in self.terms) or " + 0"
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


def _term(monomial: Monomial, coefficient: int) -> str:
    names = [dim.name for dim in monomial]
    factors = [str(abs(coefficient)), *names] if abs(coefficient) != 1 or not names else names
    return f" {'-' if coefficient < 0 else '+'} {'*'.join(factors)}"


_MOST_TERMS = 256
_MOST_FACTORS = 16


def formula(terms: Iterable[tuple[Monomial, int]]) -> Formula:
    """The normal form of a sum; dimensions first, in the order of their names, the constant last.

    Raises IrError if it is larger than any that a shape needs, so that formulas of formulas cannot grow without end.
    """
    total: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        key = tuple(sorted(monomial, key=lambda dim: dim.name))
        total[key] = total.get(key, 0) + coefficient
        if len(total) > _MOST_TERMS or len(key) > _MOST_FACTORS:
            raise IrError(f"a formula of more than {_MOST_TERMS} terms, or of more than {_MOST_FACTORS} factors in one")
    ordered = sorted(total.items(), key=lambda item: (-len(item[0]), [dim.name for dim in item[0]]))
    return Formula(tuple((monomial, coefficient) for monomial, coefficient in ordered if coefficient))


def number(value: int) -> Formula:
    """The formula that is a number."""
    return Formula((((), value),) if value else ())


def of(extent: Extent) -> Formula:
    """The formula that is an extent."""
    return number(extent) if isinstance(extent, int) else Formula((((extent,), 1),))


def free(extents: Sequence[Extent]) -> Formula:
    """The product of extents over free dimensions: the number of elements of a shape."""
    named = [extent for extent in extents if isinstance(extent, Dim)]
    total = number(prod(extent for extent in extents if isinstance(extent, int)))
    for dim in named:
        total *= of(dim)
    return total.free()


def same(a: Extent, b: Extent) -> bool:
    """Whether two extents are equal for all sizes."""
    return a == b or ((not isinstance(a, int) or not isinstance(b, int)) and of(a).free() == of(b).free())


def extent_of(wanted: Formula, dims: Mapping[str, Dim]) -> Extent:
    """The number or dimension that is always equal to the formula; raises IrError if the graph has none."""
    expanded = wanted.free()
    if expanded.constant is not None:
        return expanded.constant
    for dim in dims.values():
        if of(dim).free() == expanded:
            return dim
    raise IrError(f"the graph has no dimension of {wanted}: declare one, as in `S: LOW..HIGH = {wanted}`")


RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Constraint:
    """`left [% modulus] relation right`, for every sizes a graph is run at."""

    left: Formula
    modulus: int | None
    relation: str
    right: Formula

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes keep it; `sizes` has every dimension it names."""
        left = self.left.value(sizes)
        left = left if self.modulus is None else left % self.modulus
        return RELATIONS[self.relation](left, self.right.value(sizes))

    def __str__(self) -> str:
        modulus = "" if self.modulus is None else f" % {self.modulus}"
        left = f"({self.left})" if modulus and len(self.left.terms) > 1 else str(self.left)
        return f"{left}{modulus} {self.relation} {self.right}"
