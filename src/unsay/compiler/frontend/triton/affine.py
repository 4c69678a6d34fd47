"""Index arithmetic of a kernel: sums of symbols times numbers, and what can be read off them.

A symbol is something that takes the values 0 .. extent-1 while a kernel runs: an axis of a tile, a program id, a loop's
iteration. `pid * 128 + arange(0, 128)` is `128*program0 + axis0`: as a coordinate of a tensor it is a whole dimension,
walked once, since 1*128 and 128*G fit together like digits. That is what `is_dense` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd, prod


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """`kind` and `index` say which: ("axis", 0), ("program", 1), ("loop", 2), ("sum", 0), ("set", 3)."""

    kind: str
    index: int
    extent: int

    def __str__(self) -> str:
        return f"{self.kind}{self.index}"


def axis(index: int, extent: int) -> Symbol:
    """Position along an axis of a tile."""
    return Symbol("axis", index, extent)


@dataclass(frozen=True, slots=True)
class Affine:
    """constant + sum of coefficient * symbol; terms sorted, no coefficient 0, no symbol with a single value."""

    constant: int
    terms: tuple[tuple[Symbol, int], ...] = ()

    def __add__(self, other: Affine) -> Affine:
        return affine(self.constant + other.constant, [*self.terms, *other.terms])

    def __sub__(self, other: Affine) -> Affine:
        return self + other * -1

    def __mul__(self, factor: int) -> Affine:
        return affine(self.constant * factor, [(symbol, coefficient * factor) for symbol, coefficient in self.terms])

    @property
    def symbols(self) -> tuple[Symbol, ...]:
        """Those it depends on."""
        return tuple(symbol for symbol, _ in self.terms)

    @property
    def is_constant(self) -> bool:
        """Whether it is a number."""
        return not self.terms

    @property
    def low(self) -> int:
        """The least it can be."""
        return self.constant + sum(min(0, coefficient * (symbol.extent - 1)) for symbol, coefficient in self.terms)

    @property
    def high(self) -> int:
        """The most it can be."""
        return self.constant + sum(max(0, coefficient * (symbol.extent - 1)) for symbol, coefficient in self.terms)

    def coefficient(self, symbol: Symbol) -> int:
        """Of a symbol; 0 if it is not there."""
        return dict(self.terms).get(symbol, 0)

    def rename(self, new: Callable[[Symbol], Symbol]) -> Affine:
        """The same over other symbols."""
        return affine(self.constant, [(new(symbol), coefficient) for symbol, coefficient in self.terms])

    def substitute(self, values: Mapping[Symbol, Affine]) -> Affine:
        """Symbols replaced by what they stand for."""
        total = Affine(self.constant)
        for symbol, coefficient in self.terms:
            total = total + values.get(symbol, of(symbol)) * coefficient
        return total

    def __str__(self) -> str:
        parts = [f"{coefficient}*{symbol}" if coefficient != 1 else str(symbol) for symbol, coefficient in self.terms]
        return " + ".join([*parts, str(self.constant)] if self.constant or not parts else parts)


def affine(constant: int, terms: Iterable[tuple[Symbol, int]] = ()) -> Affine:
    """In normal form; a symbol of extent 1 is always 0."""
    total: dict[Symbol, int] = {}
    for symbol, coefficient in terms:
        if symbol.extent > 1:
            total[symbol] = total.get(symbol, 0) + coefficient
    return Affine(constant, tuple(sorted((symbol, number) for symbol, number in total.items() if number)))


def of(symbol: Symbol) -> Affine:
    """The symbol itself."""
    return affine(0, [(symbol, 1)])


def digits(value: Affine) -> tuple[Symbol, ...] | None:
    """The symbols, most significant first, if `value` counts 0 .. product-1 with each combination once; else None."""
    if value.constant:
        return None
    expected = 1
    ordered = sorted(value.terms, key=lambda term: term[1])
    for symbol, coefficient in ordered:
        if coefficient != expected:
            return None
        expected *= symbol.extent
    return tuple(symbol for symbol, _ in reversed(ordered))


def is_dense(value: Affine) -> bool:
    """Whether `value` counts without gaps or repeats."""
    return digits(value) is not None


def span(symbols: Iterable[Symbol]) -> int:
    """Combinations of values."""
    return prod(symbol.extent for symbol in symbols)


def step_of(value: Affine) -> int:
    """The greatest number that divides every coefficient; 1 for a number."""
    return gcd(*(coefficient for _, coefficient in value.terms)) or 1


def divided(value: Affine, by: int) -> Affine:
    """value / by, where `by` divides all of it."""
    assert all(coefficient % by == 0 for _, coefficient in value.terms) and value.constant % by == 0, (value, by)
    return affine(value.constant // by, [(symbol, coefficient // by) for symbol, coefficient in value.terms])


def by_strides(offset: Affine, strides: Iterable[int]) -> list[Affine]:
    """An offset as coordinates of a tensor, outermost first: each stride takes the terms it divides."""
    coordinates: list[Affine] = []
    for stride in strides:
        taken = [(symbol, coefficient) for symbol, coefficient in offset.terms if coefficient % stride == 0]
        whole = affine(offset.constant // stride * stride, taken)
        coordinates.append(divided(whole, stride))
        offset = offset - whole
    return coordinates
