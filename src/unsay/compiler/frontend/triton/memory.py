"""Loads and stores: pointers and masks as views of whole tensors.

A load of `x + 64*program0 + axis0` under `64*program0 + axis0 < 1000` is x[0:1000] at that coordinate, `other` outside.
A store must write every element of its tensor, each once; then the tensor is the tile, its coordinates put in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from unsay.compiler.frontend.triton.affine import Affine, by_strides, digits, divided, of, span, step_of
from unsay.compiler.frontend.triton.edges import Edge
from unsay.compiler.frontend.triton.tiles import Data, RefusalError, Splat, Tile, Tiles
from unsay.compiler.frontend.triton.values import Pointer
from unsay.compiler.ir.core import Value


@dataclass(frozen=True, slots=True)
class Bound:
    """low <= coordinate <= high, and the terms that say so."""

    low: int
    high: int
    terms: tuple[Affine, ...]


def load(
    tiles: Tiles, tensor: Value, pointer: Pointer, terms: Sequence[Affine], guards: Sequence[Affine], other: Edge
) -> tuple[Tile, list[Affine]]:
    """The tensor at the pointer's coordinates, `other` outside the bounds that terms of the mask give; the other terms.

    Raises RefusalError where the load may leave the tensor.
    """
    shape, coordinates, bounds = _coordinates(tensor, pointer, [*terms, *guards, *pointer.below], "load")
    value = tiles.reshape(tensor, shape)
    made: list[Affine] = []
    edges: list[Edge] = []
    for coordinate, bound, size in zip(coordinates, bounds, shape, strict=True):
        masked = _bound(coordinate, terms)
        value, seen = _window(tiles, value, len(made), coordinate, bound)
        if seen is not None:
            made.append(seen)
            edges.append(other if masked.low >= 0 and masked.high < size else None)
    used = {term for bound in bounds for term in bound.terms}
    left = [term for term in terms if term not in used and term.low < 0]
    return Tile(value, tuple(made), tuple(edges), other if all(edge == other for edge in edges) else None), left


def _coordinates(
    tensor: Value, pointer: Pointer, terms: Sequence[Affine], what: str
) -> tuple[tuple[int, ...], list[Affine], list[Bound]]:
    """The pointer as coordinates inside the tensor, or inside its elements in a row."""
    dims = tuple(extent for extent in tensor.type.dims if isinstance(extent, int))
    for shape in dict.fromkeys((dims, (prod(dims),))):
        strides = [prod(shape[index + 1 :]) for index in range(len(shape))]
        coordinates = by_strides(pointer.offset, strides)
        bounds = [_bound(coordinate, terms) for coordinate in coordinates]
        if all(bound.low >= 0 and bound.high < size for bound, size in zip(bounds, shape, strict=True)):
            _check_independent(coordinates)
            return shape, coordinates, bounds
    raise RefusalError(
        f"the {what} at {pointer.offset} may leave {tensor.type}: no mask bounds it, or not by its sizes"
    )


def _check_independent(coordinates: list[Affine]) -> None:
    symbols = [symbol for coordinate in coordinates for symbol in coordinate.symbols]
    if len(symbols) != len(set(symbols)):
        raise RefusalError(f"coordinates {', '.join(map(str, coordinates))} of one tensor depend on each other")


def _bound(coordinate: Affine, terms: Sequence[Affine]) -> Bound:
    """From the ranges of symbols, and terms `c - coordinate` (at most c) and `coordinate - c` (at least c)."""
    low, high, used = coordinate.low, coordinate.high, list[Affine]()
    for term in terms:
        if (above := term + coordinate).is_constant and not coordinate.is_constant:
            high = min(high, above.constant)
            used.append(term)
        elif (below := coordinate - term).is_constant and not coordinate.is_constant:
            low = max(low, below.constant)
            used.append(term)
    return Bound(low, high, tuple(used))


def _window(tiles: Tiles, value: Value, dim: int, coordinate: Affine, bound: Bound) -> tuple[Value, Affine | None]:
    """The part of a dimension that is looked at, and the coordinate in it; a single element leaves no dimension."""
    base, step = coordinate.constant, step_of(coordinate)
    if any(coefficient < 0 for _, coefficient in coordinate.terms):
        raise RefusalError(f"an access in reverse order, {coordinate}")
    first, last = max(0, -((base - bound.low) // step)), (bound.high - base) // step
    if last < first:
        raise RefusalError(f"a mask that lets nothing through, at {coordinate}")
    start, stop = base + step * first, base + step * last + 1
    if (start, step) != (0, 1) or stop < _size(value, dim):
        value = tiles.emit("slice", value, axis=dim, start=start, stop=stop, step=step)
    if coordinate.is_constant:
        dims = [_size(value, other) for other in range(value.type.rank) if other != dim]
        return tiles.reshape(value, dims), None
    return value, divided(coordinate - Affine(base), step) - Affine(first)


def store(tiles: Tiles, tensor: Value, pointer: Pointer, terms: Sequence[Affine], data: Data) -> Value:
    """The tensor after the store; raises RefusalError unless every element is written, once."""
    shape, coordinates, bounds = _coordinates(tensor, pointer, [*terms, *pointer.below], "store")
    for coordinate, bound, size in zip(coordinates, bounds, shape, strict=True):
        symbols = digits(coordinate)
        if symbols is None or bound.low or min(bound.high + 1, span(symbols)) != size:
            raise RefusalError(
                f"the store writes {bound.low}..{bound.high} by {coordinate}, not all of {size} once each"
            )
    used = {term for bound in bounds for term in bound.terms}
    if any(term not in used and term.low < 0 for term in terms):
        raise RefusalError("the store leaves out elements by a mask that is not a bound of its tensor")
    if isinstance(data, Splat):
        whole = tiles.constant(data.number, data.dtype, shape)
    else:
        whole = _arranged(tiles, data, coordinates, shape)
    return tiles.reshape(whole, _dims(tensor))


def _arranged(tiles: Tiles, tile: Tile, coordinates: list[Affine], shape: tuple[int, ...]) -> Value:
    """The tile's value with a dimension for each coordinate, of its size; those it has not are made of symbols."""
    tile = tiles.split(tile, {own for own in tile.coordinates if own not in coordinates})
    _check_stored(tile, coordinates, shape)
    groups = [[own] if own in tile.coordinates else list(map(of, digits(own) or ())) for own in coordinates]
    flat = [own for group in groups for own in group]
    sizes = {own: tile.size(dim) for dim, own in enumerate(tile.coordinates)}
    value = tiles.transpose(tile.value, [tile.coordinates.index(own) for own in flat if own in sizes])
    value = tiles.reshape(value, [sizes.get(own, 1) for own in flat])
    value = tiles.broadcast(value, [sizes.get(own, own.high + 1) for own in flat])
    value = tiles.reshape(value, [prod(sizes.get(own, own.high + 1) for own in group) for group in groups])
    for dim, size in enumerate(shape):
        if _size(value, dim) > size:
            value = tiles.emit("slice", value, axis=dim, start=0, stop=size, step=1)
    return value


def _check_stored(tile: Tile, coordinates: list[Affine], shape: tuple[int, ...]) -> None:
    written = {symbol for own in coordinates for symbol in own.symbols}
    for dim, own in enumerate(tile.coordinates):
        if not set(own.symbols) <= written:
            raise RefusalError(f"several programs or iterations write one element: the tile depends on {own}")
        if own in coordinates and tile.size(dim) < shape[coordinates.index(own)]:
            raise RefusalError(f"the store writes elements along {own} that are not defined: {tile.size(dim)} are")
    sizes = dict(zip(coordinates, shape, strict=True))
    for hole in tile.holes:
        if not any((hole + own).is_constant and (hole + own).constant >= size - 1 for own, size in sizes.items()):
            raise RefusalError("the store writes elements that the masks of loads leave undefined")


def _size(value: Value, dim: int) -> int:
    extent = value.type.dims[dim]
    assert isinstance(extent, int), value
    return extent


def _dims(value: Value) -> tuple[int, ...]:
    return tuple(_size(value, dim) for dim in range(value.type.rank))


def selected(tiles: Tiles, terms: Sequence[Affine], a: Tile, number: Edge) -> tuple[Tile, list[Affine]]:
    """`a` where the terms hold, else `number`: bounds of a coordinate become its edge; other terms are given back."""
    left: list[Affine] = []
    for term in terms:
        if term.low >= 0:
            continue
        dim = next((dim for dim, own in enumerate(a.coordinates) if (term + own).is_constant), None)
        if dim is None:
            left.append(term)
            continue
        a = _masked(tiles, a, dim, (term + a.coordinates[dim]).constant + 1, number)
    partial = [edge for dim, edge in enumerate(a.edges) if a.is_partial(dim)]
    return replace(a, corner=number if all(edge == number for edge in partial) else None), left


def _masked(tiles: Tiles, a: Tile, dim: int, stop: int, number: Edge) -> Tile:
    """`a` up to `stop` along a dimension, then `number`."""
    size = a.size(dim)
    if stop > size:
        return a if a.edges[dim] == number else replace(a, edges=(*a.edges[:dim], None, *a.edges[dim + 1 :]))
    if stop < 1:
        raise RefusalError("a mask that lets nothing through")
    value = a.value if stop == size else tiles.emit("slice", a.value, axis=dim, start=0, stop=stop, step=1)
    return replace(a, value=value, edges=(*a.edges[:dim], number, *a.edges[dim + 1 :]))
