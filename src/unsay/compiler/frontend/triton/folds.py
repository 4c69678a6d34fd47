"""Reductions and products of tiles: over an axis, over the iterations of a loop, or over both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unsay.compiler.frontend.triton.affine import Affine, Symbol, digits, of
from unsay.compiler.frontend.triton.edges import Edge, compute
from unsay.compiler.frontend.triton.tiles import Data, RefusalError, Splat, Tile, Tiles, edge_at
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.types import dtype_name
from unsay.isa.formats import DType


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


def reduce(tiles: Tiles, tile: Data, symbol: Symbol, how: Reduction) -> Data:
    """Over all values of a symbol, which the result no longer depends on."""
    if isinstance(tile, Splat) or not tile.with_symbol(symbol):
        if isinstance(tile, Tile) and any(symbol in hole.symbols for hole in tile.holes):
            raise RefusalError("elements that the mask leaves undefined take part in the reduction")
        return tile if how.combine != "add" else tiles.apply("mul", tile, Splat(symbol.extent, tile.dtype))
    (dim,) = tile.with_symbol(symbol)
    if tile.coordinates[dim] != of(symbol):
        tile = tiles.split(tile, {tile.coordinates[dim]})
        (dim,) = tile.with_symbol(symbol)
    if tile.coordinates[dim] != of(symbol):
        raise RefusalError(f"a reduction over some of {tile.coordinates[dim]}")
    undefined = tile.is_partial(dim) and tile.edges[dim] != how.neutral
    if undefined or any(symbol in hole.symbols for hole in tile.holes):
        given = tile.edges[dim]
        raise RefusalError(
            f"elements outside the mask take part in the reduction: load them as {how.neutral:g}, not {given}"
        )
    return _reduced(tiles, tile, dim, symbol.extent, how)


def _reduced(tiles: Tiles, tile: Tile, dim: int, extent: int, how: Reduction) -> Tile:
    value = tiles.emit(how.kind, tile.value, axes=(dim,), keepdims=False)
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


def contract(tiles: Tiles, a: Tile, b: Tile, symbols: Sequence[Symbol], dtype: DType) -> Tile:
    """sum of a * b over all values of `symbols`: one matmul, batched over what a and b both depend on."""
    a, b = _contractible(tiles, a, b, symbols), _contractible(tiles, b, a, symbols)
    (a, b), _, _ = tiles.align([a, b])
    summed = [coordinate for coordinate in a.coordinates if _meets(coordinate, symbols)]
    if set(summed) != {coordinate for coordinate in b.coordinates if _meets(coordinate, symbols)} or not summed:
        raise RefusalError("the two sides of the product are not indexed alike along the summed dimension")
    _check_summed(a, b, summed, symbols)
    batch = [coordinate for coordinate in a.coordinates if coordinate in b.coordinates and coordinate not in summed]
    rows = [coordinate for coordinate in a.coordinates if coordinate not in b.coordinates]
    columns = [coordinate for coordinate in b.coordinates if coordinate not in a.coordinates]
    left, right = _matrix(tiles, a, batch, rows, summed), _matrix(tiles, b, batch, summed, columns)
    if dtype is not left.type.dtype:
        left, right = (tiles.emit("cast", side, dtype=dtype_name(dtype)) for side in (left, right))
    sizes = {**_sizes(a), **_sizes(b)}
    made = [*batch, *rows, *columns]
    value = tiles.reshape(tiles.emit("matmul", left, right), [sizes[coordinate] for coordinate in made])
    edges = [_product_edge(a, b, coordinate) for coordinate in made]
    return Tile(value, tuple(made), tuple(edges), None, (*a.holes, *b.holes))


def _contractible(tiles: Tiles, tile: Tile, other: Tile, symbols: Sequence[Symbol]) -> Tile:
    """Its summed coordinates whole, if they count exactly the summed symbols in both; else split."""
    mixed = {
        coordinate
        for coordinate in tile.coordinates
        if _meets(coordinate, symbols)
        and (
            not set(coordinate.symbols) <= set(symbols) or coordinate not in other.coordinates or not digits(coordinate)
        )
    }
    return tiles.split(tile, mixed)


def _check_summed(a: Tile, b: Tile, summed: list[Affine], symbols: Sequence[Symbol]) -> None:
    counted = [symbol for coordinate in summed for symbol in coordinate.symbols]
    if sorted(counted) != sorted(symbol for symbol in symbols if symbol.extent > 1):
        raise RefusalError("the summed dimension does not count every element once")
    for coordinate in summed:
        dims = a.coordinates.index(coordinate), b.coordinates.index(coordinate)
        if a.is_partial(dims[0]) and a.edges[dims[0]] != 0 and b.edges[dims[1]] != 0:
            raise RefusalError("elements outside the mask take part in the product: load them as 0")
    if any(_meets(hole, symbols) for hole in (*a.holes, *b.holes)):
        raise RefusalError("elements that the mask leaves undefined take part in the product")


def _matrix(tiles: Tiles, tile: Tile, *groups: list[Affine]) -> Value:
    """[batch .., one dimension for each further group]"""
    batch, *sides = groups
    order = [coordinate for group in groups for coordinate in group]
    value = tiles.transpose(tile.value, [tile.coordinates.index(coordinate) for coordinate in order])
    sizes = _sizes(tile)
    dims = [sizes[coordinate] for coordinate in batch]
    return tiles.reshape(value, [*dims, *(math.prod(sizes[coordinate] for coordinate in side) for side in sides)])


def _sizes(tile: Tile) -> dict[Affine, int]:
    return {coordinate: tile.size(dim) for dim, coordinate in enumerate(tile.coordinates)}


def _meets(coordinate: Affine, symbols: Sequence[Symbol]) -> bool:
    return not set(coordinate.symbols).isdisjoint(symbols)


def _product_edge(a: Tile, b: Tile, coordinate: Affine) -> Edge:
    """0 where a factor is 0, else not known."""
    return 0.0 if edge_at(a, coordinate) == 0 or edge_at(b, coordinate) == 0 else None


def _reduce_edge(edge: Edge, count: int, corner: Edge, outside: int, how: Reduction) -> Edge:
    """`count` elements of edge and `outside` of corner."""
    if edge is None or (outside and corner is None):
        return None
    if how.combine == "add":
        return edge * count + ((corner or 0) * outside if outside else 0)
    return edge if not outside or corner is None else compute(how.combine, [edge, corner])
