"""Program ids of one launch, and integers computed from them that are no sums: `pid // n`, `min(pid, n)`, swizzles.

Such an integer is worked out for every program. What comes out is a number, a symbol that is there already, or a new
symbol of kind "set", with its value in every program kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.triton.affine import Affine, Symbol, affine
from unsay.compiler.frontend.triton.tiles import RefusalError

Ints = NDArray[np.int64]


class Programs:
    """The programs of a grid, numbered with the first id fastest."""

    def __init__(self, grid: tuple[int, int, int]) -> None:
        self.grid = grid
        numbers = np.arange(prod(grid), dtype=np.int64)
        x, y, _ = grid
        values = (numbers % x, numbers // x % y, numbers // (x * y))
        self.ids = tuple(Symbol("program", axis, size) for axis, size in enumerate(grid))
        self._values: dict[Symbol, Ints] = dict(zip(self.ids, values, strict=True))

    def compute(self, function: Callable[..., Any], *arguments: Affine) -> Affine | None:
        """function(arguments) where they depend on the program alone; None where they do not."""
        if any(symbol not in self._values for argument in arguments for symbol in argument.symbols):
            return None
        total = len(next(iter(self._values.values())))
        given = [np.broadcast_to(self._evaluate(argument), total) for argument in arguments]
        return self._named(np.asarray(function(*given), np.int64))

    def check_each_once(self, symbols: Iterable[Symbol]) -> None:
        """Raise RefusalError unless programs take every combination of these symbols."""
        used = [symbol for symbol in symbols if symbol in self._values]
        if all(symbol.kind == "program" for symbol in used):
            return
        if len(np.unique(self._codes(used))) != prod(symbol.extent for symbol in used):
            raise RefusalError("programs do not reach every part of what is stored")

    def are_told_apart(self, symbols: Iterable[Symbol]) -> bool:
        """Whether no two programs take the same combination of these symbols."""
        return len(np.unique(self._codes(symbols))) == prod(self.grid)

    def _codes(self, symbols: Iterable[Symbol]) -> Ints:
        """A number for each program, equal where these symbols are."""
        code = np.zeros(prod(self.grid), np.int64)
        for symbol in symbols:
            if symbol in self._values:
                code = code * symbol.extent + self._values[symbol]
        return code

    def _evaluate(self, argument: Affine) -> Ints | int:
        return argument.constant + sum(coefficient * self._values[symbol] for symbol, coefficient in argument.terms)

    def _named(self, values: Ints) -> Affine:
        """base + step * symbol"""
        base = int(values.min())
        step = int(np.gcd.reduce(values - base)) or 1
        normal = (values - base) // step
        if not normal.any():
            return Affine(base)
        for symbol, known in self._values.items():
            if np.array_equal(known, normal):
                return affine(base, [(symbol, step)])
        made = Symbol("set", len(self._values), int(normal.max()) + 1)
        self._values[made] = normal
        return affine(base, [(made, step)])
