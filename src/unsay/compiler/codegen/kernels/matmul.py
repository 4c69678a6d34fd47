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
tile for the other half. If there is one tile only it asks for what comes AHEAD_BYTES later.

A token that is alone goes through quantised weights in another way, for then all there is to do is to read:

    notes(x)
    for each pair of units of this thread's share     (one of the first half of all, one of the second)
        pair(weights, second, x, notes, sums)         memory gives two streams faster than one
        both epilogues
    and then for what is left of others' shares       (nobody waits for a thread whose core is slower)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F32X16, I64, Function, Module, Value
from unsay.compiler.codegen.kernels.amx import tile_loop
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.tile import Notes, Product, notes_function, pair_function, tile_function
from unsay.compiler.codegen.kernels.vector import LANES, Output, kernel_parameters, leave_if_interrupted, taken
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
    if product.dtype in QUANTISED_WEIGHTS:
        is_alone = f["count"].compare("eq", 1)
        with f.when(is_alone):
            _of_one_token(f, unit, product, groups, epilogue)
        f.return_if(is_alone)
    _of_chunks(f, unit, product, groups, epilogue)


def _of_chunks(f: Function, unit: DotUnit, product: Product, groups: int, epilogue: Epilogue) -> None:
    """The loops over all tokens; a thread helps others in the last chunk, for its notes are of one."""
    chunk, token_bytes = _chunk_tokens(unit, product), Notes(unit, product, 1).num_bytes
    sums, notes = f.buffer(groups * unit.tiles[0] * LANES * 4), f.buffer(chunk * token_bytes)
    with f.loop("chunk", 0, f["count"], chunk) as start:
        stop = f.smaller(start + chunk, f["count"])
        if product.dtype in QUANTISED_WEIGHTS:
            for tile in _tiles(f, unit, start, stop, "notes"):
                note = notes_function(f.module, unit, product, tile.tokens)
                f.run(note, f["x"], tile.token, notes.at(tile.place * token_bytes))
        with taken(f, product.num_groups // groups, stop.compare("eq", f["count"])) as (index, end):
            weights = f["weights"].at(index * (groups * product.group_bytes))
            for tile in _tiles(f, unit, start, stop, "tile"):
                leave_if_interrupted(f)
                starts = weights, *tile.ahead(f, weights, groups * product.group_bytes, (index + 1).compare("slt", end))
                given = f["x"], tile.token, notes.at(tile.place * token_bytes)
                places = [sums.at(group * tile.tokens * LANES * 4) for group in range(groups)]
                for group, place in enumerate(places):
                    function = tile_function(f.module, unit, product, tile.tokens)
                    f.run(function, *(at.at(group * product.group_bytes) for at in starts), *given, place)
                with f.loop("token", 0, tile.tokens) as inside:
                    made = [f.load(F32X16, place.at(inside * (LANES * 4)), align=64) for place in places]
                    epilogue(index, tile.token + inside, made)


def _of_one_token(f: Function, unit: DotUnit, product: Product, groups: int, epilogue: Epilogue) -> None:
    """Pair number i is of units i and i + num_pairs; the second of the last may be beyond the end, and is left out."""
    num_units, token = product.num_groups // groups, f.constant(I64, 0)
    num_pairs = (num_units + 1) // 2
    notes, sums = f.buffer(Notes(unit, product, 1).num_bytes), f.buffer(groups * 2 * LANES * 4)
    places = [sums.at(group * 2 * LANES * 4) for group in range(groups)]
    f.run(notes_function(f.module, unit, product, 1), f["x"], token, notes)

    def finish(index: Value, number: int) -> None:
        epilogue(index, token, [f.load(F32X16, place.at(number * LANES * 4), align=64) for place in places])

    with taken(f, num_pairs) as (first, _):
        leave_if_interrupted(f)
        second = f.smaller(first + num_pairs, num_units - 1)
        weights = [f["weights"].at(index * (groups * product.group_bytes)) for index in (first, second)]
        for group, place in enumerate(places):
            starts = (address.at(group * product.group_bytes) for address in weights)
            f.run(pair_function(f.module, unit, product), *starts, f["x"], token, notes, place)
        finish(first, 0)
        with f.when((first + num_pairs).compare("slt", num_units)):
            finish(second, 1)


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


def _tiles(f: Function, unit: DotUnit, start: Value, stop: Value, name: str) -> Iterator[_Tile]:
    """The tiles of tokens start .. stop - 1, each kind inside of a loop of its own."""
    num_tokens, begin = stop - start, start
    for tokens in unit.tiles:
        end = stop - num_tokens % tokens
        with f.loop(f"{name}{tokens}.", begin, end, tokens) as token:
            is_first, is_last = token.compare("eq", start), (token + tokens).compare("eq", stop)
            yield _Tile(tokens, token, token - start, is_first, is_last)
        begin = end


def _chunk_tokens(unit: DotUnit, product: Product) -> int:
    """Tokens of a chunk: whole tiles of the most tokens."""
    x_bytes = product.width * (1 if product.dtype in QUANTISED_WEIGHTS else 4)
    most = unit.tiles[0]
    return max(1, CHUNK_BYTES // (x_bytes * most)) * most
