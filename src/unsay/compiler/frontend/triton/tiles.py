"""Tiles of a kernel as whole tensors of LLMIR.

A kernel computes with tiles; program ids, loops and the axes of a tile say where in a tensor each lies. A `Tile` is the
whole tensor with the map from those symbols to its dimensions:

    element of the tile at symbols s  =  value[coordinates(s)]   where every coordinate is inside the value's dimension
                                      =  edges[d]                where coordinate d alone is outside (masked)
                                      =  corner                  where several are

None is an edge whose content is not known (edges.py). For finite inputs graph and kernel are the same.
`holes`: the value itself is to be trusted only where each of these is >= 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from unsay.compiler.dialect import ops
from unsay.compiler.frontend.triton.affine import Affine, Symbol, digits, of, span
from unsay.compiler.frontend.triton.edges import COMPARISONS, Edge, Number, compute, compute_edge, number_of
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.types import FLOATS, TensorType, dtype_name
from unsay.isa.formats import DType


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
        if not tiles and (folded := compute(kind, numbers)) is not None:
            return Splat(folded, DType.BOOL if kind in COMPARISONS else operands[-1].dtype)
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
                operand.number if isinstance(operand, Splat) else edge_at(next(aligned), coordinate)
                for operand in operands
            ]
            edges.append(compute_edge(kind, seen))
        corners = [operand.number if isinstance(operand, Splat) else operand.corner for operand in operands]
        alike = all(len(tile.coordinates) == len(coordinates) for tile in tiles)
        corner = compute_edge(kind, corners) if alike else None
        holes = tuple(dict.fromkeys(hole for tile in tiles for hole in tile.holes))
        return Tile(value, tuple(coordinates), tuple(edges), corner, holes)

    def cast(self, x: Data, dtype: DType) -> Data:
        """x in another element type; edges keep their numbers, which are 0 or infinite in practice."""
        if x.dtype is dtype:
            return x
        if isinstance(x, Splat):
            return Splat(number_of(x.number, dtype), dtype)
        edges = tuple(None if edge is None else number_of(edge, dtype) for edge in x.edges)
        corner = None if x.corner is None else number_of(x.corner, dtype)
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


def _place(coordinate: Affine) -> tuple[int, str]:
    """Dimensions stand in the order of a tile's axes; those of no axis come first."""
    axes = [symbol.index for symbol in coordinate.symbols if symbol.kind == "axis"]
    return max(axes, default=-1), str(coordinate)


def edge_at(tile: Tile, coordinate: Affine) -> Edge:
    """What lies outside along a coordinate; not known for one the tile does not depend on."""
    return tile.edges[tile.coordinates.index(coordinate)] if coordinate in tile.coordinates else None
