"""What a value of a kernel is while the kernel is raised, and how axes of tiles move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from unsay.compiler.frontend.triton.affine import Affine, Symbol
from unsay.compiler.frontend.triton.tiles import Data, Splat, Tile
from unsay.isa.formats import DType


@dataclass(frozen=True, slots=True)
class Index:
    """Integers computed from symbols; right only where every `below` is >= 0 (`i % M` is i below M)."""

    value: Affine
    below: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Pointer:
    """Elements of a parameter's tensor, `offset` from its first."""

    parameter: int
    offset: Affine
    below: tuple[Affine, ...] = ()


@dataclass(frozen=True, slots=True)
class Mask:
    """True where every term is >= 0; no terms: true."""

    terms: tuple[Affine, ...]

    @property
    def known(self) -> bool | None:
        """True or False if it is the same everywhere, else None."""
        if all(term.low >= 0 for term in self.terms):
            return True
        return False if any(term.high < 0 for term in self.terms) else None


@dataclass(frozen=True, slots=True)
class Dot:
    """A product not carried out yet: a loop may go on summing where it ends."""

    a: Tile
    b: Tile
    summed: Symbol
    dtype: DType


@dataclass(frozen=True, slots=True)
class Carried:
    """A tile that a loop carries from one iteration to the next: it may only be accumulated into."""

    loop: int
    position: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class Accumulated:
    """combine(carried, terms)."""

    carried: Carried
    combine: str
    terms: tuple[Data | Dot, ...]


@dataclass(frozen=True, slots=True)
class Poison:
    """What an operation that could not be raised would have made; all that reads it is left out."""


Abstract: TypeAlias = Index | Pointer | Mask | Tile | Splat | Dot | Carried | Accumulated | Poison


def rename(value: Abstract, new: Callable[[Symbol], Symbol]) -> Abstract:
    """The value over other symbols."""
    match value:
        case Index():
            return Index(value.value.rename(new), tuple(term.rename(new) for term in value.below))
        case Pointer():
            below = tuple(term.rename(new) for term in value.below)
            return replace(value, offset=value.offset.rename(new), below=below)
        case Mask():
            return Mask(tuple(term.rename(new) for term in value.terms))
        case Tile():
            return value.rename(new)
        case _:
            return value


def moved(positions: Callable[[int], int]) -> Callable[[Symbol], Symbol]:
    """Axes of a tile at other positions."""
    return lambda symbol: replace(symbol, index=positions(symbol.index)) if symbol.kind == "axis" else symbol
