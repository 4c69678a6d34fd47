"""What instructions on AMX tiles touch, and their rules, which a CPU answers with an exception.

A configuration is read from the 64 bytes a kernel has stored: how many rows of how many bytes each tile has, known or
not. Then

    a load or store     touches that many bytes of each of its rows; the first and the last are looked at as accesses
    a product           needs three tiles, sums [m][n] of [m][k] and [k/4][n], and bytes in whole words
    an interrupt        is looked at, and a barrier met, without tiles: a thread that leaves or waits holds none
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.text import KernelTextError
from unsay.compiler.verify.kernels.values import Pointer, Value
from unsay.compiler.verify.obligation import NotProvedError, Result, Status

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.machine import Machine

_PREFIX = "llvm.x86."
_NUM_TILES, _MOST_ROWS, _MOST_BYTES = 8, 16, 64

_FIXED = [Affine(1), Affine(), Affine(), Affine(), Affine()]
"""The words of a configuration that say palette 1, and nothing of tiles there are not."""


@dataclass(frozen=True, slots=True)
class _Shape:
    rows: Affine
    row_bytes: int


def is_of_tiles(name: str) -> bool:
    """Whether this is the name of an instruction on tiles."""
    return name.startswith((f"{_PREFIX}tile", f"{_PREFIX}tdp", f"{_PREFIX}ldtilecfg"))


class Tiles:
    """The tiles of the thread whose code is executed; none of them is configured at first."""

    def __init__(self) -> None:
        self._shapes: list[_Shape] = []

    def check_released(self, where: str) -> None:
        """Raise NotProvedError if tiles are configured."""
        if self._shapes:
            raise NotProvedError(Result(Status.REFUTED), f"@{where} with tiles configured")

    def execute(self, machine: Machine, name: str, arguments: Sequence[Value]) -> None:
        """One instruction; raises NotProvedError if it may be against the rules."""
        match name.removeprefix(_PREFIX), arguments:
            case "ldtilecfg", [Pointer() as address]:
                self._shapes = [self._checked(machine, shape) for shape in _configuration(machine, address)]
            case "tilerelease", []:
                self._shapes = []
            case "tilezero", [number]:
                self._shape(number)
            case ("tileloadd64" | "tilestored64") as how, [number, Pointer() as address, Affine() as stride]:
                self._move(machine, self._shape(number), address, stride, how == "tilestored64")
            case "tdpbssd", [total, left, right]:
                self._multiply(*map(self._shape, (total, left, right)))
            case _:
                raise KernelTextError(f"no model of @{name}")

    def _shape(self, number: Value) -> _Shape:
        place = _number(number)
        if place >= len(self._shapes):
            raise NotProvedError(Result(Status.REFUTED), f"tile {place} of {len(self._shapes)} configured ones")
        return self._shapes[place]

    def _checked(self, machine: Machine, shape: _Shape) -> _Shape:
        """1 to 16 rows of 4 to 64 bytes."""
        least, most = shape.rows - 1, shape.rows * -1 + _MOST_ROWS
        for free in (least, most):
            if free.low < 0 and machine.implied(free.term() >= 0).status is not Status.PROVED:
                raise NotProvedError(Result(Status.REFUTED), f"a tile of {shape.rows} rows")
        if not 0 < shape.row_bytes <= _MOST_BYTES or shape.row_bytes % 4:
            raise NotProvedError(Result(Status.REFUTED), f"a tile with rows of {shape.row_bytes} bytes")
        return shape

    def _move(self, machine: Machine, shape: _Shape, address: Pointer, stride: Affine, is_write: bool) -> None:
        if not stride.is_constant:
            raise KernelTextError(f"rows of a tile {stride} bytes apart")
        for row in (Affine(), shape.rows - 1):
            machine.world.access(machine, address.at(row * stride.constant), shape.row_bytes, is_write)

    def _multiply(self, total: _Shape, left: _Shape, right: _Shape) -> None:
        fits = (total.rows, total.row_bytes) == (left.rows, right.row_bytes)
        if not fits or right.rows != Affine(left.row_bytes // 4):
            raise NotProvedError(Result(Status.REFUTED), f"sums {total} of {left} and {right}")


def _configuration(machine: Machine, address: Pointer) -> list[_Shape]:
    """The shapes a configuration gives; raises KernelTextError if it is no such thing."""
    words = [machine.load(address.at(8 * place), "i64") for place in range(_NUM_TILES)]
    known = [word for word in words if isinstance(word, Affine)]
    if len(known) < len(words) or [word for place, word in enumerate(known) if place not in (2, 3, 6)] != _FIXED:
        raise KernelTextError("a configuration of tiles of another kind")
    low, high, rows = known[2], known[3], known[6]
    if not (low.is_constant and high.is_constant):
        raise KernelTextError(f"tiles with rows of {low} and {high} bytes")
    row_bytes = (low.constant + (high.constant << 64)).to_bytes(16, "little")
    return [
        _Shape(_byte(rows, tile), int.from_bytes(row_bytes[2 * tile : 2 * tile + 2], "little"))
        for tile in range(_NUM_TILES)
    ]


def _byte(word: Affine, place: int) -> Affine:
    """A byte of a word whose bytes are sums of their own."""
    total = Affine(_digit(word.constant, place))
    for symbol, factor in word.terms:
        total = total + of(symbol) * _digit(factor, place)
    return total


def _digit(number: int, place: int) -> int:
    return number >> 8 * place & 0xFF


def _number(value: Value) -> int:
    """A constant i8."""
    assert isinstance(value, Lane) and value.low == value.high, value
    return value.low
