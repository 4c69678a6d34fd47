"""Sizes that are not numbers yet: integers and formulas over a graph's dimensions, with Python's arithmetic.

Exporters compute shapes with ordinary nodes (Shape, Gather, Mul, Concat, then Reshape). The generator runs those on
arrays of sizes, so that `reshape(x, [B, T, 9 * 64])` is all that is left of them. A question that the ranges of the
dimensions do not decide is a RefusalError, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import TypeAlias

from unsay.compiler.ir import dims
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.dims import Dim, Extent, Formula, Monomial
from unsay.errors import IrError

DEFAULT_RANGE = (1, 1 << 16)


class RefusalError(Exception):
    """What one node asks for cannot be imported; the generator collects these and raises UnimportableError."""


class Size:
    """A formula that is no plain number; every operation gives an int where the result is one."""

    __slots__ = ("formula",)

    def __init__(self, formula: Formula) -> None:
        self.formula = formula

    def __add__(self, other: AnySize) -> AnySize:
        return size(self.formula + _formula(other))

    __radd__ = __add__

    def __mul__(self, other: AnySize) -> AnySize:
        return size(self.formula * _formula(other))

    __rmul__ = __mul__

    def __neg__(self) -> AnySize:
        return self * -1

    def __sub__(self, other: AnySize) -> AnySize:
        return self + _formula_times(other, -1)

    def __rsub__(self, other: AnySize) -> AnySize:
        return -self + other

    def __floordiv__(self, other: AnySize) -> AnySize:
        return _divide(self, other)

    def __rfloordiv__(self, other: int) -> AnySize:
        return _divide(other, self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | Size):
            return NotImplemented
        low, high = _bounds(self - other)
        if low == high == 0 or low > 0 or high < 0:
            return low == high == 0
        raise RefusalError(f"whether {self} is {other} depends on the sizes")

    def __hash__(self) -> int:
        return hash(self.formula)

    def __lt__(self, other: AnySize) -> bool:
        return _is_negative(self - other)

    def __gt__(self, other: AnySize) -> bool:
        return _is_negative(other - self)

    def __ge__(self, other: AnySize) -> bool:
        return not self < other

    def __le__(self, other: AnySize) -> bool:
        return not self > other

    def __str__(self) -> str:
        return str(self.formula)

    __repr__ = __str__


AnySize: TypeAlias = int | Size


def size(formula: Formula) -> AnySize:
    """The number or the size that a formula is."""
    expanded = formula.free()
    return Size(expanded) if expanded.constant is None else expanded.constant


def size_of(extent: Extent) -> AnySize:
    """The size of a dimension of a type."""
    return extent if isinstance(extent, int) else size(dims.of(extent))


def _is_negative(difference: AnySize) -> bool:
    low, high = _bounds(difference)
    if low < 0 <= high:
        raise RefusalError(f"whether {difference} is less than 0 depends on the sizes")
    return high < 0


def always_equal(a: AnySize, b: AnySize) -> bool:
    """Whether two sizes are one for all sizes of the dimensions."""
    return isinstance(a - b, int) and a - b == 0


def product(sizes: Iterable[AnySize]) -> AnySize:
    """Of all; 1 for none."""
    total: AnySize = 1
    for factor in sizes:
        total = total * factor
    return total


def extent(wanted: AnySize, graph: Graph) -> Extent:
    """The number or dimension of this size; the graph gets a dimension with a formula if it has none."""
    if isinstance(wanted, int):
        if wanted < 1:
            raise RefusalError(f"a dimension of {wanted}")
        return wanted
    try:
        return dims.extent_of(wanted.formula, graph.dims)
    except IrError:
        low, high = _bounds(wanted)
        made = Dim(_unique(_spell(str(wanted)), graph), max(low, 1), high, wanted.formula)
    graph.dims[made.name] = made
    return made


class Names:
    """Dimensions by the names a file gives: `T`, or a formula over such, `P + T`; other text is one opaque name."""

    def __init__(self, graph: Graph, ranges: Mapping[str, tuple[int, int]]) -> None:
        self._graph = graph
        self._ranges = ranges
        self._dims: dict[str, Dim] = {}

    def declare(self, text: str) -> Extent:
        """The dimension of this name; the graph gets it when it is first seen."""
        if re.fullmatch(r"[A-Za-z_]\w*(\s*[+*]\s*\w+)+", text):
            total: AnySize = 0
            for term in text.split("+"):
                total = total + product(self._factor(name.strip()) for name in term.split("*"))
            return extent(total, self._graph)
        return self._named(text)

    def unknown(self) -> set[str]:
        """Names that have a range, and that the file does not have."""
        return self._ranges.keys() - self._graph.dims.keys() - self._dims.keys()

    def _factor(self, text: str) -> AnySize:
        return int(text) if text.isdigit() and len(text) < 10 else size_of(self._named(text))

    def _named(self, text: str) -> Dim:
        if text not in self._dims:
            name = _unique(_spell(text), self._graph)
            low, high = self._ranges.get(text, self._ranges.get(name, DEFAULT_RANGE))
            self._dims[text] = self._graph.dims[name] = Dim(name, low, high)
        return self._dims[text]


def _spell(text: str) -> str:
    """A name that LLMIR text allows: `B*T + 1` is B_times_T_plus_1."""
    for symbol, word in ((" + ", "_plus_"), (" - ", "_minus_"), ("*", "_times_")):
        text = text.replace(symbol, word)
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)[:64]
    return name if re.match(r"[A-Za-z_]", name) and name != "x" else f"n_{name}"


def _unique(name: str, graph: Graph) -> str:
    candidate, suffix = name, 0
    while candidate in graph.dims:
        suffix += 1
        candidate = f"{name}_{suffix}"
    return candidate


def _formula(value: AnySize) -> Formula:
    if isinstance(value, Size):
        return value.formula
    if value != int(value):
        raise RefusalError(f"a size with {value}, which is no integer")
    return dims.number(int(value))


def _formula_times(value: AnySize, factor: int) -> AnySize:
    return value * factor


def _bounds(value: AnySize) -> tuple[int, int]:
    """The least and the most a size can be, from the ranges of its dimensions, each taken alone."""
    if isinstance(value, int):
        return value, value
    low = high = 0
    for monomial, coefficient in value.formula.terms:
        ends = (coefficient * prod(dim.low for dim in monomial), coefficient * prod(dim.high for dim in monomial))
        low, high = low + min(ends), high + max(ends)
    return low, high


def _divide(left: AnySize, right: AnySize) -> AnySize:
    """left // right where that is a formula: right divides every term of left."""
    divisor = _formula(right).terms
    if len(divisor) != 1:
        if isinstance(left, Size) and isinstance(right, Size) and left.formula == right.formula:
            return 1
        raise RefusalError(f"({left}) / ({right}) is not a formula")
    ((by, coefficient),) = divisor
    quotient: list[tuple[Monomial, int]] = []
    for monomial, factor in _formula(left).terms:
        rest = list(monomial)
        if factor % coefficient or any(dim not in rest or rest.remove(dim) for dim in by):
            raise RefusalError(f"({left}) / ({right}) is not a formula")
        quotient.append((tuple(rest), factor // coefficient))
    return size(dims.formula(quotient))
