"""Tiles of a kernel as whole tensors of LLMIR.

A kernel computes with tiles; program ids, loops and the axes of a tile say where in a tensor each lies. A `Tile` is the
whole tensor with the map from those symbols to its dimensions:

    element of the tile at symbols s  =  value[coordinates(s)]   where every coordinate is inside the value's dimension
                                      =  edges[d]                where coordinate d alone is outside (masked)
                                      =  corner                  where several are

None is an edge whose content is not known. Where an operation meets a known and an unknown element, the unknown one is
taken to be finite (and no divisor 0): -inf + it is -inf, 0 * it is 0. For finite inputs graph and kernel are the same.
`holes`: the value itself is to be trusted only where each of these is >= 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from unsay.compiler.dialect import ops
from unsay.compiler.frontend.triton.affine import Affine, Symbol, digits, of, span
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.types import FLOATS, TensorType, dtype_name
from unsay.isa.formats import DType

Number: TypeAlias = float | int | bool
Edge: TypeAlias = Number | None


class RefusalError(Exception):
    """What an operation of a kernel asks for cannot be raised; the importer collects these with their places."""


@dataclass(frozen=True, slots=True)
class Splat:
    """One number for every element."""

    number: Number
    dtype: DType


@dataclass(frozen=True, slots=True)
class Tile:
    """See the head of this file; `coordinates` and `edges` have one entry for each dimension of `value`."""

    value: Value
    coordinates: tuple[Affine, ...]
    edges: tuple[Edge, ...]
    corner: Edge = None
    holes: tuple[Affine, ...] = ()

    @property
    def dtype(self) -> DType:
        """Of its elements."""
        return self.value.type.dtype

    def size(self, dim: int) -> int:
        """Of a dimension."""
        extent = self.value.type.dims[dim]
        assert isinstance(extent, int), self.value
        return extent

    def is_partial(self, dim: int) -> bool:
        """Whether the coordinate is outside for some values of its symbols."""
        return self.coordinates[dim].high >= self.size(dim) or self.coordinates[dim].low < 0

    def with_symbol(self, symbol: Symbol) -> list[int]:
        """Dimensions whose coordinate depends on a symbol."""
        return [dim for dim, coordinate in enumerate(self.coordinates) if symbol in coordinate.symbols]

    def rename(self, new: Callable[[Symbol], Symbol]) -> Tile:
        """The same over other symbols."""
        coordinates = tuple(coordinate.rename(new) for coordinate in self.coordinates)
        return replace(self, coordinates=coordinates, holes=tuple(hole.rename(new) for hole in self.holes))


Data: TypeAlias = Tile | Splat


@dataclass(frozen=True, slots=True)
class Reduction:
    """How LLMIR reduces, and the number that changes nothing."""

    kind: str
    combine: str
    neutral: float


REDUCTIONS = {
    "add": Reduction("reduce_sum", "add", 0.0),
    "maximum": Reduction("reduce_max", "maximum", -math.inf),
    "minimum": Reduction("reduce_min", "minimum", math.inf),
}


class Tiles:
    """Adds operations to a graph, on tiles."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def emit(self, kind: str, *operands: Value, **attributes: AttributeValue) -> Value:
        """One operation on whole tensors."""
        return ops.emit(self.graph, kind, *operands, name=kind, before=None, **attributes)

    def reshape(self, x: Value, dims: Sequence[int]) -> Value:
        """x in another shape."""
        wanted = TensorType(tuple(dims), x.type.dtype)
        return x if x.type == wanted else ops.declare(self.graph, "reshape", x, name="reshape", type=wanted)

    def broadcast(self, x: Value, dims: Sequence[int]) -> Value:
        """x repeated to a shape."""
        wanted = TensorType(tuple(dims), x.type.dtype)
        return x if x.type == wanted else ops.declare(self.graph, "broadcast_to", x, name="broadcast", type=wanted)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """x with its dimensions in another order."""
        return x if list(perm) == list(range(x.type.rank)) else self.emit("transpose", x, perm=tuple(perm))

    def constant(self, number: Number, dtype: DType, dims: tuple[int, ...] = ()) -> Value:
        """One number in every element."""
        value = float(number) if dtype in FLOATS else int(number)
        return ops.declare(self.graph, "constant", name="c", type=TensorType(dims, dtype), value=(value,))

    def apply(self, kind: str, *operands: Data, **attributes: AttributeValue) -> Data:
        """An operation element by element."""
        tiles = [operand for operand in operands if isinstance(operand, Tile)]
        numbers = [operand.number for operand in operands if isinstance(operand, Splat)]
        if not tiles and (folded := _compute(kind, numbers)) is not None:
            return Splat(folded, DType.BOOL if kind in _COMPARISONS else operands[-1].dtype)
        tiles, values, coordinates = self.align(tiles)
        given = iter(values)
        lifted = [
            self.constant(operand.number, operand.dtype) if isinstance(operand, Splat) else next(given)
            for operand in operands
        ]
        value = self.emit(kind, *lifted, **attributes)
        return self._edged(kind, operands, tiles, coordinates, value)

    def _edged(
        self, kind: str, operands: Sequence[Data], tiles: list[Tile], coordinates: list[Affine], value: Value
    ) -> Tile:
        """The result of an operation with what lies outside it, and nothing more certain than its operands."""
        edges: list[Edge] = []
        for coordinate in coordinates:
            aligned = iter(tiles)
            seen = [
                operand.number if isinstance(operand, Splat) else _edge_at(next(aligned), coordinate)
                for operand in operands
            ]
            edges.append(_compute_edge(kind, seen))
        corners = [operand.number if isinstance(operand, Splat) else operand.corner for operand in operands]
        alike = all(len(tile.coordinates) == len(coordinates) for tile in tiles)
        corner = _compute_edge(kind, corners) if alike else None
        holes = tuple(dict.fromkeys(hole for tile in tiles for hole in tile.holes))
        return Tile(value, tuple(coordinates), tuple(edges), corner, holes)

    def cast(self, x: Data, dtype: DType) -> Data:
        """x in another element type; edges keep their numbers, which are 0 or infinite in practice."""
        if x.dtype is dtype:
            return x
        if isinstance(x, Splat):
            return Splat(_number_of(x.number, dtype), dtype)
        edges = tuple(None if edge is None else _number_of(edge, dtype) for edge in x.edges)
        corner = None if x.corner is None else _number_of(x.corner, dtype)
        return replace(x, value=self.emit("cast", x.value, dtype=dtype_name(dtype)), edges=edges, corner=corner)

    def align(self, tiles: list[Tile]) -> tuple[list[Tile], list[Value], list[Affine]]:
        """Tiles over the same coordinates: the tiles cut to one size, values ready to broadcast, the coordinates."""
        tiles = self._untangle(tiles)
        sizes: dict[Affine, int] = {}
        for tile in tiles:
            for dim, coordinate in enumerate(tile.coordinates):
                sizes[coordinate] = min(tile.size(dim), sizes.get(coordinate, tile.size(dim)))
        order = sorted(sizes, key=_place)
        tiles = [self._cut(tile, sizes) for tile in tiles]
        return tiles, [self._spread(tile, order) for tile in tiles], order

    def _spread(self, tile: Tile, order: list[Affine]) -> Value:
        """The value with a dimension for each coordinate of `order`, 1 for one it does not depend on."""
        own = [coordinate for coordinate in order if coordinate in tile.coordinates]
        value = self.transpose(tile.value, [tile.coordinates.index(coordinate) for coordinate in own])
        if not own:
            return value
        dims = dict(zip(own, value.type.dims, strict=True))
        wanted = [dims.get(coordinate, 1) for coordinate in order[order.index(own[0]) :]]
        return self.reshape(value, [size for size in wanted if isinstance(size, int)])

    def _cut(self, tile: Tile, sizes: Mapping[Affine, int]) -> Tile:
        """The tile with its dimensions cut; what was beyond is now outside, and not known there."""
        for dim, coordinate in enumerate(tile.coordinates):
            size = sizes.get(coordinate, tile.size(dim))
            if size < tile.size(dim):
                value = self.emit("slice", tile.value, axis=dim, start=0, stop=size, step=1)
                edges = (*tile.edges[:dim], None, *tile.edges[dim + 1 :])
                tile = replace(tile, value=value, edges=edges, corner=None)
        return tile

    def _untangle(self, tiles: list[Tile]) -> list[Tile]:
        """Split coordinates until each symbol belongs to one coordinate in all tiles."""
        while True:
            owners: dict[Symbol, set[Affine]] = {}
            for tile in tiles:
                for coordinate in tile.coordinates:
                    for symbol in coordinate.symbols:
                        owners.setdefault(symbol, set()).add(coordinate)
            shared = {coordinate for owned in owners.values() if len(owned) > 1 for coordinate in owned}
            if all(len(coordinate.terms) == 1 for coordinate in shared):
                return tiles
            tiles = [self.split(tile, shared) for tile in tiles]

    def split(self, tile: Tile, coordinates: set[Affine]) -> Tile:
        """Each of these coordinates as one dimension for each of its symbols."""
        for coordinate in coordinates:
            if coordinate in tile.coordinates and len(coordinate.terms) > 1:
                tile = self._split(tile, tile.coordinates.index(coordinate))
        return tile

    def _split(self, tile: Tile, dim: int) -> Tile:
        """[.., n, ..] at 128*p + i  ->  padded to [.., P*128, ..]  ->  [.., P, 128, ..] at p and i"""
        coordinate = tile.coordinates[dim]
        symbols = digits(coordinate)
        if symbols is None:
            raise RefusalError(f"the indices {coordinate} do not line up with others used beside them")
        tile = self._padded(tile, dim, span(symbols))
        dims = [tile.size(other) for other in range(tile.value.type.rank)]
        dims[dim : dim + 1] = [symbol.extent for symbol in symbols]
        edges: list[Edge] = list(tile.edges)
        edges[dim : dim + 1] = [None] * len(symbols)
        made = (*tile.coordinates[:dim], *map(of, symbols), *tile.coordinates[dim + 1 :])
        return replace(tile, value=self.reshape(tile.value, dims), coordinates=made, edges=tuple(edges), corner=None)

    def _padded(self, tile: Tile, dim: int, size: int) -> Tile:
        """The tile with a dimension made as long as `size`: by its edge, or by zeros with a hole."""
        missing = size - tile.size(dim)
        if missing <= 0:
            return tile
        edge = tile.edges[dim]
        hole = () if edge is not None else (Affine(tile.size(dim) - 1) - tile.coordinates[dim],)
        pads = [0] * (2 * tile.value.type.rank)
        pads[dim + tile.value.type.rank] = missing
        value, dtype = tile.value, tile.dtype
        if dtype is DType.BOOL:
            value = self.emit("cast", value, dtype="i8")
        value = self.emit("pad", value, pads=tuple(pads), value=float(edge or 0))
        if dtype is DType.BOOL:
            value = self.emit("cast", value, dtype="bool")
        return replace(tile, value=value, holes=(*tile.holes, *hole))

    def reduce(self, tile: Data, symbol: Symbol, how: Reduction) -> Data:
        """Over all values of a symbol, which the result no longer depends on."""
        if isinstance(tile, Splat) or not tile.with_symbol(symbol):
            if isinstance(tile, Tile) and any(symbol in hole.symbols for hole in tile.holes):
                raise RefusalError("elements that the mask leaves undefined take part in the reduction")
            return tile if how.combine != "add" else self.apply("mul", tile, Splat(symbol.extent, tile.dtype))
        (dim,) = tile.with_symbol(symbol)
        if tile.coordinates[dim] != of(symbol):
            tile = self.split(tile, {tile.coordinates[dim]})
            (dim,) = tile.with_symbol(symbol)
        if tile.coordinates[dim] != of(symbol):
            raise RefusalError(f"a reduction over some of {tile.coordinates[dim]}")
        undefined = tile.is_partial(dim) and tile.edges[dim] != how.neutral
        if undefined or any(symbol in hole.symbols for hole in tile.holes):
            given = tile.edges[dim]
            raise RefusalError(
                f"elements outside the mask take part in the reduction: load them as {how.neutral:g}, not {given}"
            )
        return self._reduced(tile, dim, symbol.extent, how)

    def _reduced(self, tile: Tile, dim: int, extent: int, how: Reduction) -> Tile:
        value = self.emit(how.kind, tile.value, axes=(dim,), keepdims=False)
        outside = extent - tile.size(dim)
        edges = [_reduce_edge(edge, tile.size(dim), tile.corner, outside, how) for edge in tile.edges]
        corner = _reduce_edge(tile.corner, extent, None, 0, how)
        kept = [other for other in range(tile.value.type.rank) if other != dim]
        return Tile(
            value,
            tuple(tile.coordinates[other] for other in kept),
            tuple(edges[other] for other in kept),
            corner,
            tile.holes,
        )

    def contract(self, a: Tile, b: Tile, symbols: Sequence[Symbol], dtype: DType) -> Tile:
        """sum of a * b over all values of `symbols`: one matmul, batched over what a and b both depend on."""
        a, b = self._contractible(a, b, symbols), self._contractible(b, a, symbols)
        (a, b), _, _ = self.align([a, b])
        summed = [coordinate for coordinate in a.coordinates if _meets(coordinate, symbols)]
        if set(summed) != {coordinate for coordinate in b.coordinates if _meets(coordinate, symbols)} or not summed:
            raise RefusalError("the two sides of the product are not indexed alike along the summed dimension")
        self._check_summed(a, b, summed, symbols)
        batch = [coordinate for coordinate in a.coordinates if coordinate in b.coordinates and coordinate not in summed]
        rows = [coordinate for coordinate in a.coordinates if coordinate not in b.coordinates]
        columns = [coordinate for coordinate in b.coordinates if coordinate not in a.coordinates]
        left, right = self._matrix(a, batch, rows, summed), self._matrix(b, batch, summed, columns)
        if dtype is not left.type.dtype:
            left, right = (self.emit("cast", side, dtype=dtype_name(dtype)) for side in (left, right))
        sizes = {**_sizes(a), **_sizes(b)}
        made = [*batch, *rows, *columns]
        value = self.reshape(self.emit("matmul", left, right), [sizes[coordinate] for coordinate in made])
        edges = [_product_edge(a, b, coordinate) for coordinate in made]
        return Tile(value, tuple(made), tuple(edges), None, (*a.holes, *b.holes))

    def _contractible(self, tile: Tile, other: Tile, symbols: Sequence[Symbol]) -> Tile:
        """Its summed coordinates whole, if they count exactly the summed symbols in both; else split."""
        mixed = {
            coordinate
            for coordinate in tile.coordinates
            if _meets(coordinate, symbols)
            and (
                not set(coordinate.symbols) <= set(symbols)
                or coordinate not in other.coordinates
                or not digits(coordinate)
            )
        }
        return self.split(tile, mixed)

    def _check_summed(self, a: Tile, b: Tile, summed: list[Affine], symbols: Sequence[Symbol]) -> None:
        counted = [symbol for coordinate in summed for symbol in coordinate.symbols]
        if sorted(counted) != sorted(symbol for symbol in symbols if symbol.extent > 1):
            raise RefusalError("the summed dimension does not count every element once")
        for coordinate in summed:
            dims = a.coordinates.index(coordinate), b.coordinates.index(coordinate)
            if a.is_partial(dims[0]) and a.edges[dims[0]] != 0 and b.edges[dims[1]] != 0:
                raise RefusalError("elements outside the mask take part in the product: load them as 0")
        if any(_meets(hole, symbols) for hole in (*a.holes, *b.holes)):
            raise RefusalError("elements that the mask leaves undefined take part in the product")

    def _matrix(self, tile: Tile, *groups: list[Affine]) -> Value:
        """[batch .., one dimension for each further group]"""
        batch, *sides = groups
        order = [coordinate for group in groups for coordinate in group]
        value = self.transpose(tile.value, [tile.coordinates.index(coordinate) for coordinate in order])
        sizes = _sizes(tile)
        dims = [sizes[coordinate] for coordinate in batch]
        return self.reshape(value, [*dims, *(math.prod(sizes[coordinate] for coordinate in side) for side in sides)])

    def count(self, value: Affine, dtype: DType, hints: Sequence[tuple[Affine, int]] = ()) -> Data:
        """Index arithmetic as data: a sum of iotas, along the coordinates (with sizes) used beside it where it can."""
        if value.is_constant:
            return Splat(value.constant, dtype)
        total: Data = Splat(value.constant, dtype)
        for coordinate, size in [*hints, *((of(symbol), symbol.extent) for symbol in value.symbols)]:
            lead, *_ = coordinate.terms or (None,)
            if lead is None or value.coefficient(lead[0]) % lead[1] or not value.coefficient(lead[0]):
                continue
            factor = value.coefficient(lead[0]) // lead[1]
            rest = value - coordinate * factor
            if any(symbol in rest.symbols for symbol in coordinate.symbols):
                continue
            positions = ops.declare(self.graph, "iota", name="i", type=TensorType((size,), dtype), axis=0)
            tile: Data = Tile(positions, (coordinate,), (None,))
            tile = tile if factor == 1 else self.apply("mul", tile, Splat(factor, dtype))
            total = tile if total == Splat(0, dtype) else self.apply("add", total, tile)
            value = rest
        return total


def hints_of(*operands: object) -> list[tuple[Affine, int]]:
    """Coordinates with sizes that data beside index arithmetic has."""
    tiles = [operand for operand in operands if isinstance(operand, Tile)]
    return [(coordinate, tile.size(dim)) for tile in tiles for dim, coordinate in enumerate(tile.coordinates)]


def _sizes(tile: Tile) -> dict[Affine, int]:
    return {coordinate: tile.size(dim) for dim, coordinate in enumerate(tile.coordinates)}


def _meets(coordinate: Affine, symbols: Sequence[Symbol]) -> bool:
    return not set(coordinate.symbols).isdisjoint(symbols)


def _place(coordinate: Affine) -> tuple[int, str]:
    """Dimensions stand in the order of a tile's axes; those of no axis come first."""
    axes = [symbol.index for symbol in coordinate.symbols if symbol.kind == "axis"]
    return max(axes, default=-1), str(coordinate)


def _edge_at(tile: Tile, coordinate: Affine) -> Edge:
    return tile.edges[tile.coordinates.index(coordinate)] if coordinate in tile.coordinates else None


def _product_edge(a: Tile, b: Tile, coordinate: Affine) -> Edge:
    """0 where a factor is 0, else not known."""
    return 0.0 if _edge_at(a, coordinate) == 0 or _edge_at(b, coordinate) == 0 else None


def _reduce_edge(edge: Edge, count: int, corner: Edge, outside: int, how: Reduction) -> Edge:
    """`count` elements of edge and `outside` of corner."""
    if edge is None or (outside and corner is None):
        return None
    if how.combine == "add":
        return edge * count + ((corner or 0) * outside if outside else 0)
    return edge if not outside or corner is None else _compute(how.combine, [edge, corner])


def _number_of(number: Number, dtype: DType) -> Number:
    if dtype is DType.F16:
        return float(np.float16(number))
    return float(number) if dtype in FLOATS else bool(number) if dtype is DType.BOOL else int(number)


_COMPARISONS = frozenset({"equal", "less", "less_equal", "greater", "greater_equal", "and", "or", "not"})

_NUMPY: dict[str, Callable[..., object]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "floor": np.floor, "tanh": np.tanh, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "select": np.where,
}  # fmt: skip


def _compute(kind: str, numbers: Sequence[Number]) -> Number | None:
    """The operation on numbers; None if it has no place in the table or gives no number."""
    function = _NUMPY.get(kind)
    if function is None:
        return None
    with np.errstate(all="ignore"):
        given = [np.float32(number) if isinstance(number, float) else np.asarray(number)[()] for number in numbers]
        made = np.asarray(function(*given)).item()
    return None if made != made else made


def _compute_edge(kind: str, edges: Sequence[Edge]) -> Edge:
    """The same where some are not known, but finite."""
    numbers = [edge for edge in edges if edge is not None]
    if len(numbers) == len(edges):
        return _compute(kind, numbers)
    for position, edge in enumerate(edges):
        if edge is not None and (known := _absorbed(kind, position, edge)) is not None:
            return known
    if kind == "select" and (edges[0] is not None or edges[1] == edges[2]):
        return edges[2] if edges[0] is False else edges[1]
    return None


def _absorbed(kind: str, position: int, edge: Number) -> Edge:
    """What one operand decides alone, the others finite."""
    if kind in ("add", "sub") and math.isinf(edge):
        return -edge if kind == "sub" and position == 1 else edge
    if edge == 0 and (kind == "mul" or (kind == "div" and position == 0)):
        return 0.0
    if (kind == "maximum" and edge == math.inf) or (kind == "minimum" and edge == -math.inf):
        return edge
    return bool(edge) if (kind == "and" and not edge) or (kind == "or" and edge) else None
