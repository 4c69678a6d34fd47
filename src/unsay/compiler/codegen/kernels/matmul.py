"""Matrix products (N4, N5, N6): the loops of one thread over row groups and tokens.

A tile function (tile.py) makes 16 rows of W x for a few tokens into a small buffer, in the one order N4 and N5 allow,
whatever the number of tokens; what is then done with the 16 sums (the epilogue) belongs to the operation:

    for each chunk of tokens                          (as many as stay in the cache)
        for each tile of the chunk                    (several tokens at a time, then one at a time)
            notes(x, token)                           what the tile needs of its tokens
        for each unit of this thread's share          (a unit is 1, 2 or 4 row groups)
            for each tile of the chunk
                tile(weights, x, token, notes, sums)  sums: f32 [groups][tokens][16]
                for each token: epilogue(unit, token, sums)

Weights come from memory while tiles are computed: the first tile of a unit asks for one half of the next unit, the last
tile for the other half. If there is one tile only it asks for what comes AHEAD_BYTES later. A token that is alone goes
through both halves of the share side by side, unit by unit: memory gives two streams faster than one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F32X16, Function, Module, Value
from unsay.compiler.codegen.kernels.amx import tile_loop
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.tile import Notes, Product, notes_function, pair_function, tile_function
from unsay.compiler.codegen.kernels.vector import LANES, Output, kernel_parameters, leave_if_interrupted, share
from unsay.compiler.codegen.kernels.whole import whole_loop
from unsay.isa.formats import QUANTISED_WEIGHTS, DType

CHUNK_BYTES = 32 << 10
"""Most bytes of activations that stay in the cache while all weights pass over them, unless one tile has more."""

AHEAD_BYTES = 1536
"""How far before their use weights are asked for when one tile streams through them."""

Epilogue = Callable[[Value, Value, list[Value]], None]
"""(unit, token, one <16 x float> per row group of the unit)."""


def matmul(module: Module, unit: DotUnit, product: Product, bias: bool, accumulate: bool, stride: int) -> str:
    """Kernel (out f32 [T][stride], x, weights[, bias]): out = W x (+ bias), added to `out` if `accumulate`."""

    def write(f: Function) -> None:
        out = Output(f["out"], DType.F32, product.capacity, stride)

        def finish(group: Value, token: Value, sums: list[Value]) -> None:
            column = group * LANES
            y = sums[0]
            if bias:
                y = y + f.load(F32X16, f["bias"].at(column * 4), align=4)
            if accumulate:
                y = f.load(F32X16, f["out"].at(token * (stride * 4)).at(column * 4), align=4) + y
            out.store(f, token, column, [y])

        row_loop(f, unit, product, 1, finish)

    suffix = ("_bias" if bias else "") + ("_accumulate" if accumulate else "")
    pointers = ("out", "x", "weights", *(("bias",) if bias else ()))
    return module.define(
        f"matmul_{product.name}{suffix}",
        kernel_parameters(*pointers),
        write,
        f"out f32 [T][{stride}] = W {product.dtype.name} [{product.num_rows}, {product.width}] x{suffix}",
    )


def row_loop(f: Function, unit: DotUnit, product: Product, groups: int, epilogue: Epilogue) -> None:
    """The loops above, over this thread's share of the units of `groups` row groups; those of whole.py for Q16,
    of amx.py for Q16P."""
    assert product.num_groups % groups == 0, (product, groups)
    if product.x_dtype is DType.Q16P:
        tile_loop(f, product, groups, epilogue)
        return
    if product.x_dtype is DType.Q16:
        whole_loop(f, unit, product, groups, epilogue)
        return
    begin, end = share(f, product.num_groups // groups)
    chunk, token_bytes = _chunk_tokens(unit, product), Notes(unit, product, 1).num_bytes
    sums, notes = f.buffer(groups * unit.tiles[0] * LANES * 4), f.buffer(chunk * token_bytes)
    with f.loop("chunk", 0, f["count"], chunk) as start:
        work = _Chunk(f, unit, product, groups, start, f.smaller(start + chunk, f["count"]), notes, sums)
        first = begin
        if product.dtype in QUANTISED_WEIGHTS:
            work.take_notes()
            first = work.pairs(begin, end, epilogue)
        work.units(first, end, epilogue)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Tokens start .. stop - 1 on their way through units of `groups` row groups. notes, sums: room for what is noted
    of them all, and for what a tile makes of a unit."""

    f: Function
    unit: DotUnit
    product: Product
    groups: int
    start: Value
    stop: Value
    notes: Value
    sums: Value

    def take_notes(self) -> None:
        """For each tile, what it needs of its tokens."""
        for tile in self._tiles("notes"):
            note = notes_function(self.f.module, self.unit, self.product, tile.tokens)
            self.f.run(note, self.f["x"], tile.token, self._notes_of(tile))

    def pairs(self, begin: Value, end: Value, epilogue: Epilogue) -> Value:
        """Where there is one token: units two at a time, the first half beside the second. The first unit that is left,
        if they are an odd number, or there are more tokens."""
        f = self.f
        num_units = f.select((self.stop - self.start).compare("eq", 1), f.larger(end - begin, 0), 0)
        half = num_units // 2
        pair = pair_function(f.module, self.unit, self.product)
        with f.loop("pair", begin, begin + half) as index:
            leave_if_interrupted(f)
            both, places = (index, index + half), self._places(2)
            for group, place in enumerate(places):
                weights = [self._weights(each).at(group * self.product.group_bytes) for each in both]
                f.run(pair, *weights, f["x"], self.start, self.notes, place)
            for number, each in enumerate(both):
                epilogue(each, self.start, [_sums(f, place.at(number * LANES * 4)) for place in places])
        return begin + half * 2

    def units(self, begin: Value, end: Value, epilogue: Epilogue) -> None:
        """All tokens through one unit after the other."""
        f, group_bytes = self.f, self.product.group_bytes
        with f.loop("unit", begin, end) as index:
            weights = self._weights(index)
            for tile in self._tiles("tile"):
                leave_if_interrupted(f)
                is_more = (index + 1).compare("slt", end)
                starts = weights, *tile.ahead(f, weights, self.groups * group_bytes, is_more)
                function, places = (
                    tile_function(f.module, self.unit, self.product, tile.tokens),
                    self._places(tile.tokens),
                )
                for group, place in enumerate(places):
                    addresses = (at.at(group * group_bytes) for at in starts)
                    f.run(function, *addresses, f["x"], tile.token, self._notes_of(tile), place)
                with f.loop("token", 0, tile.tokens) as inside:
                    made = [_sums(f, place.at(inside * (LANES * 4))) for place in places]
                    epilogue(index, tile.token + inside, made)

    def _weights(self, unit: Value) -> Value:
        return self.f["weights"].at(unit * (self.groups * self.product.group_bytes))

    def _notes_of(self, tile: _Tile) -> Value:
        return self.notes.at(tile.place * Notes(self.unit, self.product, 1).num_bytes)

    def _places(self, num_sums: int) -> list[Value]:
        """For each row group of a unit, where so many times 16 sums go."""
        return [self.sums.at(group * num_sums * LANES * 4) for group in range(self.groups)]

    def _tiles(self, name: str) -> Iterator[_Tile]:
        """The tiles of all tokens, each kind inside of a loop of its own."""
        num_tokens, begin = self.stop - self.start, self.start
        for tokens in self.unit.tiles:
            end = self.stop - num_tokens % tokens
            with self.f.loop(f"{name}{tokens}.", begin, end, tokens) as token:
                is_first, is_last = token.compare("eq", self.start), (token + tokens).compare("eq", self.stop)
                yield _Tile(tokens, token, token - self.start, is_first, is_last)
            begin = end


def _sums(f: Function, address: Value) -> Value:
    return f.load(F32X16, address, align=64)


@dataclass(frozen=True, slots=True)
class _Tile:
    """Tokens token .. token + tokens - 1. place: of the first in its chunk; is_first, is_last: of the chunk's tiles."""

    tokens: int
    token: Value
    place: Value
    is_first: Value
    is_last: Value

    def ahead(self, f: Function, weights: Value, unit_bytes: int, is_more: Value) -> tuple[Value, Value]:
        """Where the even lines and the odd lines are that this tile asks for; `weights` where it leaves that to another
        tile. is_more: whether a unit follows."""
        next_unit = f.select(is_more, weights.at(unit_bytes), weights)
        far = f.select(self.is_first & self.is_last, weights.at(AHEAD_BYTES), next_unit)
        return f.select(self.is_first, far, weights), f.select(self.is_last, far, weights)


def _chunk_tokens(unit: DotUnit, product: Product) -> int:
    """Tokens of a chunk: whole tiles of the most tokens."""
    x_bytes = product.width * (1 if product.dtype in QUANTISED_WEIGHTS else 4)
    most = unit.tiles[0]
    return max(1, CHUNK_BYTES // (x_bytes * most)) * most
