"""Products of the fast class (N15) on AMX tiles: eight registers of up to 16 rows of 64 bytes.

    x = 128 * hi + lo, both int8, so a product over int8 rows is two of tdpbssd, added up at the end: exact int32

    tiles 0 1     sums of hi x rows g, of hi x rows g+1     [tokens][16] i32       for each panel (whole.py)
          2 3     sums of lo x rows g, of lo x rows g+1     [tokens][16] i32           for each 16 tokens
          4 5     hi, lo of the tokens                      [tokens][c] int8               configure
          6 7     row groups g, g+1 of weights              [c/4][16 rows][4] int8         for each pair of row groups
                                                                                               for each part of K
    panel  int8 [groups][K/4][16 rows][4 columns]      on the stack                                for each c columns
    x      Q16P: hi int8 [capacity][K] | lo int8 [capacity][K] | scale f32 [capacity]                 4 loads, 4 tdpbssd
    sums   f32 [groups of the panel][16 tokens][16]                                                store, scale, add
                                                                                           release
                                                                                           epilogues of all units
c is the most columns, up to 64, that divide K and a part. Fewer than 16 tokens are fewer rows in the configuration, an
odd row group is multiplied alone: nothing is read or written beyond what there is, and nothing is filled up.

A thread configures its tiles before each 16 tokens and releases them after (tile_registers.py says why).
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from unsay.compiler.codegen.builder import F32X16, I32X16, I64, PTR, Function, Module, Value
from unsay.compiler.codegen.kernels.rows import WholeRows, parts
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.codegen.kernels.tile_registers import TILE_BYTES, TILE_ROWS, amx, columns_of_tile, configure
from unsay.compiler.codegen.kernels.vector import LANES, leave_if_interrupted, load_floats, splat_load
from unsay.compiler.codegen.kernels.whole import LINE_BYTES, finish_unit, panel_groups, panels
from unsay.isa.formats import PART_COLUMNS, DType, num_parts

if TYPE_CHECKING:
    from unsay.compiler.codegen.kernels.matmul import Epilogue

PANEL_BYTES = 256 << 10
"""Most bytes of expanded weights, which all tokens pass over: an eighth of the L2 of the cores that have AMX."""

_SUMS, _X, _WEIGHTS = ((0, 1), (2, 3)), (4, 5), (6, 7)
"""Numbers of tiles, by plane and row group."""


def tile_loop(f: Function, product: Product, groups: int, epilogue: Epilogue) -> None:
    """The loops above, over this thread's share of the units of `groups` row groups."""
    sums = f.buffer(panel_groups(product, groups, 4, PANEL_BYTES) * TILE_BYTES)
    products = products_function(f.module, product.width, product.capacity)
    for panel in panels(f, product, groups, 4, PANEL_BYTES):
        with f.loop("tile", 0, f["count"], TILE_ROWS) as token:
            leave_if_interrupted(f)
            tokens = f.smaller(f["count"] - token, TILE_ROWS)
            num_groups = panel.num_units * panel.groups
            f.run(products, panel.weights, panel.scales, num_groups, f["x"], token, tokens, sums)
            with f.loop("unit", 0, panel.num_units) as index:
                made = sums.at(index * (panel.groups * TILE_BYTES))
                finish_unit(f, epilogue, panel, index, token, tokens, made, TILE_ROWS)


def products_function(module: Module, width: int, capacity: int) -> str:
    """void amx(panel, its scales, number of its row groups, x, first token, tokens, sums)."""

    def write(f: Function) -> None:
        x = WholeRows(f["x"], DType.Q16P, capacity, width)
        configure(f, _columns(width), f["tokens"])
        start: Value | int = 0
        for together in (2, 1):
            stop = f["groups"] - f["groups"] % together
            with f.loop(f"groups{together}.", start, stop, together) as group:
                _multiply(f, x, group, together)
            start = stop
        amx(f, "tilerelease")

    name = f"amx_k{width}_t{capacity}"
    doc = f"sums f32 [groups][16][16] of expanded row groups [16, {width}] and up to 16 tokens of Q16P"
    parameters = [
        (PTR, "weights"), (PTR, "scales"), (I64, "groups"), (PTR, "x"), (I64, "token"), (I64, "tokens"), (PTR, "sums"),
    ]  # fmt: skip
    return module.define(name, parameters, write, doc, inline=False)


def _columns(width: int) -> int:
    """Columns of a tile: as many in every part of a row."""
    return columns_of_tile(gcd(width, PART_COLUMNS))


def _multiply(f: Function, x: WholeRows, group: Value, together: int) -> None:
    """So many row groups from `group` on, by the tokens."""
    groups = [group + place for place in range(together)]
    pairs = [(plane, place) for plane in range(2) for place in range(together)]
    sums = {pair: f.buffer(TILE_BYTES) for pair in pairs}
    with f.loop("token", 0, f["tokens"]) as token:
        for number in groups:
            f.store(f.constant(F32X16, 0.0), f["sums"].at(number * TILE_BYTES).at(token * LINE_BYTES), align=64)
    for part, width in parts(f, x.width):
        for plane, place in pairs:
            amx(f, "tilezero", _SUMS[plane][place])
        with f.loop("column", 0, width, _columns(x.width)) as inside:
            column = part * PART_COLUMNS + inside
            for plane, tile in enumerate(_X):
                amx(f, "tileloadd64", tile, x.plane(f["token"], plane).at(column), x.width)
            for number, tile in zip(groups, _WEIGHTS, strict=False):
                weights = f["weights"].at(number * (x.width * LANES)).at(column * LANES)
                amx(f, "tileloadd64", tile, weights, LINE_BYTES)
            for plane, place in pairs:
                amx(f, "tdpbssd", _SUMS[plane][place], _X[plane], _WEIGHTS[place])
        for plane, place in pairs:
            amx(f, "tilestored64", _SUMS[plane][place], sums[plane, place], LINE_BYTES)
        _add_part(f, x, part, [(number, sums[0, place], sums[1, place]) for place, number in enumerate(groups)])


def _add_part(f: Function, x: WholeRows, part: Value, made: list[tuple[Value, Value, Value]]) -> None:
    """A part's share of the sums. made: row groups, and the addresses of what hi and lo gave, i32 [tokens][16]."""
    rows = [f["scales"].at((group * num_parts(x.width) + part) * LINE_BYTES) for group, _, _ in made]
    scales = [load_floats(f, DType.F32, row) for row in rows]
    with f.loop("token", 0, f["tokens"]) as token:
        x_scale, line = splat_load(f, x.scale(f["token"] + token)), token * LINE_BYTES
        for d, (group, hi, lo) in zip(scales, made, strict=True):
            high, low = (f.load(I32X16, plane.at(line), align=64) for plane in (hi, lo))
            whole = ((high << 7) + low).cast("sitofp", F32X16)
            place = f["sums"].at(group * TILE_BYTES).at(line)
            f.store(f.fma(whole, d * x_scale, f.load(F32X16, place, align=64)), place, align=64)
