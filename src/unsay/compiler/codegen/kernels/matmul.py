"""Matrix products (N4, N5, N6): tiles of 16 rows, and the loops of one thread over row groups and tokens.

A tile function makes 16 rows of W x for a few tokens into a small buffer, in the one order N4 and N5 allow, whatever
the number of tokens; what is then done with the 16 sums (the epilogue) belongs to the operation:

    for each unit of this thread's share          (a unit is 1, 2 or 4 row groups, whose weights stay in L1)
        for each tile of tokens                   (several at a time, then one at a time)
            tile(weights, x, token, sums)         sums: f32 [groups][tokens][16]
            for each token: epilogue(unit, token, sums)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F16, F32, F32X16, I32, I64, PTR, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit, block_dot
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    Output,
    Quantised,
    kernel_parameters,
    leave_if_interrupted,
    load_floats,
    share,
    splat_load,
)
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_WEIGHTS, ROW_GROUP, DType, group_block_bytes, weight_bytes

_NIBBLE_BYTES, _BYTE_BYTES, _SCALE_BYTES = 256, 512, 32

_AHEAD_BYTES = 2048
"""How far before their use weights are asked for when one token streams through them."""

Epilogue = Callable[[Value, Value, list[Value]], None]
"""(unit, token, one <16 x float> per row group of the unit)."""


@dataclass(frozen=True, slots=True)
class Product:
    """W x for one weight format and shape: W [num_rows, width], x [capacity, width] (Q8A or Q8W for a quantised W, else
    F32)."""

    dtype: DType
    num_rows: int
    width: int
    x_dtype: DType
    capacity: int

    @property
    def num_groups(self) -> int:
        """Row groups of W."""
        return -(-self.num_rows // ROW_GROUP)

    @property
    def group_bytes(self) -> int:
        """Bytes of one row group."""
        return weight_bytes(self.dtype, ROW_GROUP, self.width)

    @property
    def name(self) -> str:
        """For function names: q4_1_1536x576_q8w_t512."""
        return f"{self.dtype.name.lower()}_{self.num_rows}x{self.width}_{self.x_dtype.name.lower()}_t{self.capacity}"


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
    with f.loop("unit", begin, end) as index:
        weights = f["weights"].at(index * (groups * product.group_bytes))
        start: Value | int = 0
        for tokens in unit.tiles:
            stop = f["count"] - f["count"] % tokens
            tile = tile_function(f.module, unit, product, tokens)
            with f.loop(f"tile{tokens}.", start, stop, tokens) as token:
                leave_if_interrupted(f)
                for group in range(groups):
                    place = sums.at(group * tokens * LANES * 4)
                    f.run(tile, weights.at(group * product.group_bytes), f["x"], token, place)
                with f.loop("token", 0, tokens) as inside:
                    places = [sums.at(inside * (LANES * 4) + group * tokens * LANES * 4) for group in range(groups)]
                    epilogue(index, token + inside, [f.load(F32X16, place, align=64) for place in places])
            start = stop


def tile_function(module: Module, unit: DotUnit, product: Product, tokens: int) -> str:
    """void tile(weights of a row group, x, first token, sums f32 [tokens][16])."""
    quantised = product.dtype in QUANTISED_WEIGHTS
    write = _write_quantised_tile if quantised else _write_float_tile
    return module.define(
        f"tile_{product.dtype.name.lower()}_k{product.width}_{product.x_dtype.name.lower()}_t{product.capacity}_x{tokens}",
        [(PTR, "weights"), (PTR, "x"), (I64, "token"), (PTR, "sums")],
        lambda f: write(f, unit, product, tokens),
        f"sums f32 [{tokens}][16] of a row group {product.dtype.name} [16, {product.width}] and {tokens} tokens of "
        f"{product.x_dtype.name} from `token` on",
    )


def _write_quantised_tile(f: Function, unit: DotUnit, product: Product, tokens: int) -> None:
    """N4. Several tokens go over the weights once per register of rows, so that all sums stay in registers; one
    token goes over all rows at once, so that the weights stream from memory without a pause."""
    x = Quantised(f["x"], product.capacity, product.width)
    rows = [f["token"] + place for place in range(tokens)]
    lifts = _lifts(f, product, x, rows) if product.dtype is DType.Q4_1 else None
    flags = _wide_flags(f, product, x, rows) if product.x_dtype is DType.Q8W else None
    tile = _Tile(product, x, rows, lifts, flags)
    pieces = list(range(0, ROW_GROUP, unit.lanes))
    for together in [pieces] if tokens == 1 else [[piece] for piece in pieces]:
        _write_pieces(f, unit, tile, together)


@dataclass(frozen=True, slots=True)
class _Tile:
    """The tokens `rows` of x. lifts f32 [K/32][tokens], for Q4_1: scale_b * f32(sum_b). flags i32 [K/32], for Q8W: not
    zero where the block of any token is wide."""

    product: Product
    x: Quantised
    rows: list[Value]
    lifts: Value | None
    flags: Value | None


def _lifts(f: Function, product: Product, x: Quantised, rows: list[Value]) -> Value:
    lifts = f.buffer(len(rows) * product.width // QUANT_BLOCK * 4)
    with f.loop("block", 0, product.width // QUANT_BLOCK) as block:
        for place, row in enumerate(rows):
            whole = f.load(I32, x.sum(row).at(block * 4), align=4).cast("sitofp", F32)
            lift = f.load(F32, x.scale(row).at(block * 4), align=4) * whole
            f.store(lift, lifts.at((block * len(rows) + place) * 4), align=4)
    return lifts


def _wide_flags(f: Function, product: Product, x: Quantised, rows: list[Value]) -> Value:
    if len(rows) == 1:
        return x.wide(rows[0])
    flags = f.buffer(product.width // QUANT_BLOCK * 4)
    with f.loop("block", 0, product.width // QUANT_BLOCK) as block:
        any_wide = f.constant(I32, 0)
        for row in rows:
            any_wide = any_wide | f.load(I32, x.wide(row).at(block * 4), align=4)
        f.store(any_wide, flags.at(block * 4), align=4)
    return flags


def _write_pieces(f: Function, unit: DotUnit, tile: _Tile, pieces: list[int]) -> None:
    """The sums of the rows from each of `pieces` on, `unit.lanes` of them."""
    product, x, rows = tile.product, tile.x, tile.rows
    dtype, lanes = product.dtype, unit.lanes
    scales_at = _BYTE_BYTES if dtype is DType.Q8_0 else _NIBBLE_BYTES
    floats, halves = vector(F32, lanes), vector(F16, lanes)
    lo, scale, total = ([where(row) for row in rows] for where in (x.lo, x.scale, x.sum))
    sums = {piece: [f.slot(floats, 0.0) for _ in rows] for piece in pieces}
    offset = unit.offset(dtype)
    with f.loop("block", 0, product.width // QUANT_BLOCK) as block:
        weights = f["weights"].at(block * group_block_bytes(dtype))
        if len(pieces) * unit.lanes == ROW_GROUP and len(rows) == 1:
            for line in range(0, group_block_bytes(dtype), 64):
                f.prefetch(weights.at(_AHEAD_BYTES + line))
        for piece in pieces:
            starts = _high_dots(f, unit, tile, block, weights.at(piece * 4))
            dots = block_dot(f, unit, dtype, weights.at(piece * 4), [row.at(block * QUANT_BLOCK) for row in lo], starts)
            d = f.load(halves, weights.at(scales_at + piece * 2), align=2).cast("fpext", floats)
            for place, dot in enumerate(dots):
                if offset:
                    dot = dot - (f.load(I32, total[place].at(block * 4), align=4) * offset).splat(lanes)
                scaled = d * f.load(F32, scale[place].at(block * 4), align=4).splat(lanes)
                sums[piece][place].set(f.fma(dot.cast("sitofp", floats), scaled, sums[piece][place].get()))
            if tile.lifts is not None:
                m = f.load(halves, weights.at(scales_at + _SCALE_BYTES + piece * 2), align=2).cast("fpext", floats)
                for place, slot in enumerate(sums[piece]):
                    lift = f.load(F32, tile.lifts.at((block * len(rows) + place) * 4), align=4)
                    slot.set(f.fma(m, lift.splat(lanes), slot.get()))
    for piece in pieces:
        for place, slot in enumerate(sums[piece]):
            f.store(slot.get(), f["sums"].at(place * LANES * 4 + piece * 4), align=min(unit.vector_bytes, 32))


def _high_dots(f: Function, unit: DotUnit, tile: _Tile, block: Value, weights: Value) -> list[Value] | None:
    """128 times the dots with the high plane; where no token of the tile is wide, nothing is loaded. None for Q8A.

    Each wide token takes the weights again from L1: mostly it is the only one of its tile.
    """
    if tile.flags is None:
        return None
    slots = [f.slot(vector(I32, unit.lanes), 0) for _ in tile.rows]
    with f.when(f.load(I32, tile.flags.at(block * 4), align=4).compare("ne", 0)):
        for slot, row in zip(slots, tile.rows, strict=True):
            with f.when(f.load(I32, tile.x.wide(row).at(block * 4), align=4).compare("ne", 0)):
                high = tile.x.hi(row).at(block * QUANT_BLOCK)
                (dot,) = block_dot(f, unit, tile.product.dtype, weights, [high])
                slot.set(dot << 7)
    return [slot.get() for slot in slots]


def _write_float_tile(f: Function, unit: DotUnit, product: Product, tokens: int) -> None:
    """N5."""
    element_bytes = product.group_bytes // (ROW_GROUP * product.width)
    rows = [f["x"].at((f["token"] + place) * (product.width * 4)) for place in range(tokens)]
    sums = [f.slot(F32X16, 0.0) for _ in rows]
    with f.loop("k", 0, product.width) as k:
        w = load_floats(f, product.dtype, f["weights"].at(k * (ROW_GROUP * element_bytes)))
        for row, total in zip(rows, sums, strict=True):
            total.set(f.fma(w, splat_load(f, row.at(k * 4)), total.get()))
    for place, total in enumerate(sums):
        f.store(total.get(), f["sums"].at(place * LANES * 4), align=64)
