"""Index expressions: integer constants times symbols, plus a constant, in one canonical form.

Two i64 expressions of a kernel are equal for all values of their symbols exactly when these are equal, so the address
of a load and the address a format says can be compared as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from unsay.compiler.verify.smt import Term, z3


@dataclass(frozen=True, slots=True)
class Symbol:
    """An unknown integer, low <= it <= high."""

    name: str
    low: int
    high: int


def _no_terms() -> tuple[tuple[Symbol, int], ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of factor * symbol; terms in order of name, no factor zero."""

    constant: int = 0
    terms: tuple[tuple[Symbol, int], ...] = field(default_factory=_no_terms)

    def __add__(self, other: Affine | int) -> Affine:
        right = _affine(other)
        factors = dict(self.terms)
        for symbol, factor in right.terms:
            factors[symbol] = factors.get(symbol, 0) + factor
        return _made(self.constant + right.constant, factors)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + _affine(other) * -1

    def __mul__(self, factor: int) -> Affine:
        return _made(self.constant * factor, {symbol: old * factor for symbol, old in self.terms})

    @property
    def is_constant(self) -> bool:
        """Whether it has no symbols."""
        return not self.terms

    @property
    def low(self) -> int:
        """Its least value, each symbol taken for itself."""
        return self.constant + sum(factor * (s.low if factor > 0 else s.high) for s, factor in self.terms)

    @property
    def high(self) -> int:
        """Its largest value, each symbol taken for itself."""
        return self.constant + sum(factor * (s.high if factor > 0 else s.low) for s, factor in self.terms)

    def factor(self, symbol: Symbol) -> int:
        """The factor of a symbol, zero if it is not there."""
        return dict(self.terms).get(symbol, 0)

    def with_(self, values: Mapping[Symbol, Affine]) -> Affine:
        """The same with other expressions in place of symbols."""
        total = Affine(self.constant)
        for symbol, factor in self.terms:
            total = total + values.get(symbol, of(symbol)) * factor
        return total

    def __str__(self) -> str:
        parts = [f"{factor}*{s.name}" if factor != 1 else s.name for s, factor in self.terms]
        return " + ".join([*parts, str(self.constant)] if self.constant or not parts else parts)

    def term(self) -> Term:
        """The same as a Z3 integer."""
        return z3.IntVal(self.constant) + sum(factor * z3.Int(s.name) for s, factor in self.terms)


def of(symbol: Symbol) -> Affine:
    """The symbol itself."""
    return Affine(0, ((symbol, 1),))


def bounds(*expressions: Affine) -> list[Term]:
    """The ranges of all symbols in these, as Z3 facts."""
    symbols = {symbol for expression in expressions for symbol, _ in expression.terms}
    return [z3.And(s.low <= z3.Int(s.name), z3.Int(s.name) <= s.high) for s in symbols]


def _affine(value: Affine | int) -> Affine:
    return value if isinstance(value, Affine) else Affine(value)


def _made(constant: int, factors: Mapping[Symbol, int]) -> Affine:
    kept = [(symbol, factor) for symbol, factor in factors.items() if factor]
    return Affine(constant, tuple(sorted(kept, key=lambda term: term[0].name)))
