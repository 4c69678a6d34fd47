"""Products of the fast class (N15): an exact sum over each part of a row, whatever the weights' format.

A thread expands the row groups of a panel to int8 with a scale per part (expand.py) and lets all tokens pass over them:

    for each panel of this thread's share
        for each row group of it:  expand(weights, panel, scales)        V of QKV: as two, whose sums are added
        for each tile of tokens
            for each unit of the panel                 (a unit is 1, 2 or 4 row groups, as in matmul.py)
                tile(panel, scales, x, token, sums)    sums: f32 [groups][tokens][16]
                for each token: epilogue(unit, token, sums)

    panel   i16 [groups][K/2][16 rows][2 columns]      on the stack
    x       Q16: q i16 [capacity][K] | scale f32 [capacity]

On tiles of AMX everything inside of the panel is another loop (amx.py), for an x that is Q16P.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsay.compiler.codegen.builder import F32, F32X16, I16, I32, I64, PTR, Function, Module, Slot, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.expand import expand_function
from unsay.compiler.codegen.kernels.rows import WholeRows, parts
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.codegen.kernels.vector import LANES, leave_if_interrupted, share
from unsay.isa.formats import PART_COLUMNS, num_parts

if TYPE_CHECKING:
    from unsay.compiler.codegen.kernels.matmul import Epilogue

PANEL_BYTES = 128 << 10
"""Most bytes of expanded weights that stay in the cache while all tokens pass over them, unless one unit has more."""

LINE_BYTES = LANES * 4
"""A word for each row of a row group: two columns of it expanded, or the sums of a token."""

_TILES = {64: (12, 4, 1), 32: (6, 2, 1), 16: (4, 2, 1)}
"""Tokens done together by bytes of a register, each a divisor of the one before: as many sums as registers hold."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Expanded row groups side by side, `groups` to a unit, those of its rows that are taken twice two after the other.
    planes: 2 if rows are. first: its first unit."""

    planes: int
    groups: int
    group_bytes: int
    scale_bytes: int
    first: Value
    num_units: Value
    weights: Value
    scales: Value

    def group(self, number: Value) -> tuple[Value, Value]:
        """Addresses of a row group and of the scales of its rows."""
        return self.weights.at(number * self.group_bytes), self.scales.at(number * self.scale_bytes)


def panel_groups(product: Product, groups: int, together: int, most_bytes: int) -> int:
    """Row groups that a panel has room for: units of `groups` row groups, each taken twice at least once."""
    planes = 2 if product.num_fine else 1
    units = most_bytes // (planes * groups * _group_bytes(product, together))
    return max(1, units) * planes * groups


def _group_bytes(product: Product, together: int) -> int:
    return product.width // together * LINE_BYTES


def panels(f: Function, product: Product, groups: int, together: int, most_bytes: int) -> Iterator[Panel]:
    """For each panel of this thread's share of the units of `groups` row groups. together: columns of a word."""
    assert product.num_groups % groups == 0 == product.num_fine % (groups * LANES), (product, groups)
    group_bytes, scale_bytes = _group_bytes(product, together), num_parts(product.width) * LINE_BYTES
    room = panel_groups(product, groups, together, most_bytes)
    weights, scales = f.buffer(room * group_bytes), f.buffer(room * scale_bytes)
    num_units, num_fine = product.num_groups // groups, product.num_fine // (groups * LANES)
    for planes, start, count in (1, 0, num_units - num_fine), (2, num_units - num_fine, num_fine):
        if count == 0:
            continue
        expand = expand_function(f.module, product.dtype, product.width, together, planes)
        begin, end = share(f, count)
        units, made = room // (planes * groups), planes * groups
        with f.loop("panel", begin + start, end + start, units) as first:
            leave_if_interrupted(f)
            panel_units = f.smaller(first + units, end + start) - first
            panel = Panel(planes, made, group_bytes, scale_bytes, first, panel_units, weights, scales)
            with f.loop("group", 0, panel_units * groups) as group:
                packed = f["weights"].at((first * groups + group) * product.group_bytes)
                f.run(expand, packed, *panel.group(group * planes))
            yield panel


def finish_unit(
    f: Function,
    epilogue: Epilogue,
    panel: Panel,
    index: Value,
    token: Value,
    tokens: Value | int,
    sums: Value,
    room: int,
) -> None:
    """The epilogue of a panel's unit for tokens from `token` on. sums: f32 [groups][room][16]."""
    with f.loop("token", 0, tokens) as inside:
        places = [sums.at(inside * LINE_BYTES + group * room * LINE_BYTES) for group in range(panel.groups)]
        made = [f.load(F32X16, place, align=64) for place in places]
        if panel.planes == 2:
            made = [first + second for first, second in zip(made[::2], made[1::2], strict=True)]
        epilogue(panel.first + index, token + inside, made)


def whole_loop(f: Function, unit: DotUnit, product: Product, groups: int, epilogue: Epilogue) -> None:
    """The loops above, over this thread's share of the units of `groups` row groups."""
    tiles = _TILES[unit.vector_bytes]
    sums = f.buffer(2 * groups * tiles[0] * LINE_BYTES)
    for panel in panels(f, product, groups, 2, PANEL_BYTES):
        start: Value | int = 0
        for tokens in tiles:
            stop = f["count"] - f["count"] % tokens
            tile = _tile_function(f.module, unit, product, tokens)
            with f.loop(f"tile{tokens}.", start, stop, tokens) as token:
                leave_if_interrupted(f)
                with f.loop("unit", 0, panel.num_units) as index:
                    for place in range(panel.groups):
                        weights, scales = panel.group(index * panel.groups + place)
                        f.run(tile, weights, scales, f["x"], token, sums.at(place * tokens * LINE_BYTES))
                    finish_unit(f, epilogue, panel, index, token, tokens, sums, tokens)
            start = stop


def _tile_function(module: Module, unit: DotUnit, product: Product, tokens: int) -> str:
    """void tile(expanded row group, its scales, x, first token, sums)."""

    def write(f: Function) -> None:
        x = WholeRows(f["x"], product.x_dtype, product.capacity, product.width)
        first, scale = x.plane(f["token"]), x.scale(f["token"])
        pieces = range(0, LANES, unit.lanes)
        places = [(token, piece) for token in range(tokens) for piece in pieces]
        zero = f.constant(vector(F32, unit.lanes), 0.0)
        for token, piece in places:
            f.store(zero, f["sums"].at((token * LANES + piece) * 4), align=unit.vector_bytes)
        for part, columns in parts(f, product.width):
            sums = {place: f.slot(vector(I32, unit.lanes), 0) for place in places}
            part_weights, part_x = f["weights"].at(part * (PART_COLUMNS * 32)), first.at(part * (PART_COLUMNS * 2))
            with f.loop("pair", 0, columns // 2) as pair:
                rows, lanes = part_weights.at(pair * LINE_BYTES), vector(I16, 2 * unit.lanes)
                weights = {piece: f.load(lanes, rows.at(piece * 4), align=unit.vector_bytes) for piece in pieces}
                for token in range(tokens):
                    both = f.load(I32, part_x.at(pair * 4).at(token * product.width * 2), align=4)
                    x_pair = both.splat(unit.lanes).cast("bitcast", lanes)
                    for piece in pieces:
                        slot = sums[token, piece]
                        slot.set(pair_dot(f, unit, slot.get(), weights[piece], x_pair))
            for place, total in sums.items():
                _add_part(f, unit, part, place, scale, total)

    name = f"whole_tile_k{product.width}_t{product.capacity}_x{tokens}"
    parameters = [(PTR, "weights"), (PTR, "scales"), (PTR, "x"), (I64, "token"), (PTR, "sums")]
    doc = f"sums f32 [{tokens}][16] of an expanded row group [16, {product.width}] and {tokens} tokens of Q16"
    return module.define(name, parameters, write, doc, inline=False)


def _add_part(f: Function, unit: DotUnit, part: Value, place: tuple[int, int], scale: Value, total: Slot) -> None:
    """A part's share of some sums. place: token and first row; total: the exact sums. scale: address of those of x."""
    token, piece = place
    floats = vector(F32, unit.lanes)
    x_scale = f.load(F32, scale.at(token * 4), align=4).splat(unit.lanes)
    d = f.load(floats, f["scales"].at(part * LINE_BYTES).at(piece * 4), align=4)
    address = f["sums"].at((token * LANES + piece) * 4)
    before = f.load(floats, address, align=unit.vector_bytes)
    y = f.fma(total.get().cast("sitofp", floats), d * x_scale, before)
    f.store(y, address, align=unit.vector_bytes)


def pair_dot(f: Function, unit: DotUnit, total: Value, weights: Value, x: Value) -> Value:
    """Each i32 lane plus the two products of neighbours in the i16 lanes, exact."""
    match unit.instruction:
        case "vpmaddubsw":
            return total + f.intrinsic("llvm.x86.avx2.pmadd.wd", total.type, weights, x)
        case "vpdpbusd" if not unit.emulated:
            return f.intrinsic(f"llvm.x86.avx512.vpdpwssd.{unit.vector_bytes * 8}", total.type, total, weights, x)
        case "i16x8.dot":
            return total + f.intrinsic("llvm.wasm.dot", total.type, weights, x)
        case _:
            wide = vector(I32, 2 * unit.lanes)
            products = weights.cast("sext", wide) * x.cast("sext", wide)
            even, odd = (products.shuffle(range(start, 2 * unit.lanes, 2)) for start in (0, 1))
            return total + (even + odd)
