"""Matrix products (N4, N5, N6): the loops of one thread over row groups and tokens.

A tile function (tile.py) makes 16 rows of W x for a few tokens into a small buffer, in the one order N4 and N5 allow,
whatever the number of tokens; what is then done with the 16 sums (the epilogue) belongs to the operation:

    for each panel of this thread's share             (units whose weights stay in the cache together)
        for each tile of tokens                       (several at a time, then one at a time)
            notes(x, token)                           what the tile needs of its tokens, once for the panel
            for each unit of the panel                (a unit is 1, 2 or 4 row groups)
                tile(weights, x, token, notes, sums)  sums: f32 [groups][tokens][16]
                for each token: epilogue(unit, token, sums)
"""

from __future__ import annotations

from collections.abc import Callable

from unsay.compiler.codegen.builder import F32X16, Function, Module, Value
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.tile import Notes, Product, notes_function, tile_function
from unsay.compiler.codegen.kernels.vector import LANES, Output, kernel_parameters, leave_if_interrupted, share
from unsay.isa.formats import QUANTISED_WEIGHTS, DType

PANEL_BYTES = 64 << 10
"""Most bytes of weights that stay in the cache while all tokens pass over them, unless one unit has more."""

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
    """The loops above, over this thread's share of the units of `groups` row groups."""
    assert product.num_groups % groups == 0, (product, groups)
    begin, end = share(f, product.num_groups // groups)
    sums = f.buffer(groups * unit.tiles[0] * LANES * 4)
    notes = f.buffer(Notes(product, unit.tiles[0]).num_bytes)
    panel = max(1, PANEL_BYTES // (groups * product.group_bytes))
    with f.loop("panel", begin, end, panel) as first:
        last = f.smaller(first + panel, end)
        start: Value | int = 0
        for tokens in unit.tiles:
            stop = f["count"] - f["count"] % tokens
            with f.loop(f"tile{tokens}.", start, stop, tokens) as token:
                leave_if_interrupted(f)
                if product.dtype in QUANTISED_WEIGHTS:
                    f.run(notes_function(f.module, product, tokens), f["x"], token, notes)
                with f.loop("unit", first, last) as index:
                    _run_tiles(f, unit, product, groups, tokens, (index, token, notes, sums))
                    with f.loop("token", 0, tokens) as inside:
                        places = [sums.at(inside * (LANES * 4) + group * tokens * LANES * 4) for group in range(groups)]
                        epilogue(index, token + inside, [f.load(F32X16, place, align=64) for place in places])
            start = stop


def _run_tiles(
    f: Function, unit: DotUnit, product: Product, groups: int, tokens: int, where: tuple[Value, Value, Value, Value]
) -> None:
    """The tiles of a unit. where: (unit, first token, notes, sums)."""
    index, token, notes, sums = where
    tile = tile_function(f.module, unit, product, tokens)
    weights = f["weights"].at(index * (groups * product.group_bytes))
    for group in range(groups):
        place = sums.at(group * tokens * LANES * 4)
        f.run(tile, weights.at(group * product.group_bytes), f["x"], token, notes, place)
