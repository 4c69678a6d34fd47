"""Rows quantised with wide blocks (N3w), to a Q8W tensor: one pass for the largest of each block, one for the bytes.

A block is narrow or wide without a branch: both divide by what their largest magnitude stands for, 127 or 16256, and
of q + 64 the bits from 7 on, times 128, go to the high plane; a mask makes that nothing for a narrow block.
"""

from __future__ import annotations

from unsay.compiler.codegen.builder import F32, F32X16, I8, I32, I32X16, I64, PTR, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.vector import LANES, Quantised, block_maximum, tree_sum
from unsay.isa.formats import QUANT_BLOCK

_SMALLEST = 2.0**-100


def quantise_row(module: Module, width: int, capacity: int) -> str:
    """void quantise(out Q8W [capacity][width], row, x f32 [width])."""

    def write(f: Function) -> None:
        peaks = f.buffer(-(-width // QUANT_BLOCK // LANES) * LANES * 4)
        limit = _store_peaks(f, width, peaks) * 2.0
        out, row = Quantised(f["out"], capacity, width), f["row"]
        with f.loop("block", 0, width // QUANT_BLOCK) as block:
            peak = f.load(F32, peaks.at(block * 4), align=4)
            many = (peak * float(width // QUANT_BLOCK)).compare("ogt", limit)
            wide = many & peak.compare("oge", _SMALLEST)
            _store_block(f, out, row, block, peak, wide)

    parameters = [(PTR, "out"), (I64, "row"), (PTR, "x")]
    doc = f"row of out Q8W [{capacity}][{width}] = x f32 [{width}]"
    return module.define(f"quantise_wide_{width}_t{capacity}", parameters, write, doc)


def _store_peaks(f: Function, width: int, peaks: Value) -> Value:
    """The largest magnitude of every block, and zeros up to a whole vector; their sum16."""
    num_blocks = width // QUANT_BLOCK
    if num_blocks % LANES:
        f.store(f.constant(F32X16, 0.0), peaks.at(num_blocks // LANES * LANES * 4), align=64)
    with f.loop("block", 0, num_blocks) as block:
        f.store(block_maximum(f, *_load_block(f, block)), peaks.at(block * 4), align=4)
    total = f.slot(F32X16, 0.0)
    with f.loop("block", 0, num_blocks, LANES) as block:
        total.set(total.get() + f.load(F32X16, peaks.at(block * 4), align=64))
    return tree_sum(total.get())


def _load_block(f: Function, block: Value) -> list[Value]:
    start = f["x"].at(block * (QUANT_BLOCK * 4))
    return [f.load(F32X16, start.at(half * LANES * 4), align=4) for half in range(2)]


def _store_block(f: Function, out: Quantised, row: Value, block: Value, peak: Value, wide: Value) -> None:
    empty, zero = peak.compare("olt", _SMALLEST), f.constant(F32, 0.0)
    most = f.select(wide, f.constant(F32, 16256.0), 127.0)
    inverse = f.select(empty, zero, most / peak).splat(LANES)
    mask = f.select(wide, f.constant(I32, -128), 0)
    q = [f.unary("roundeven", half * inverse).cast("fptosi", I32X16) for half in _load_block(f, block)]
    for half, values in enumerate(q):
        place = block * QUANT_BLOCK + half * LANES
        upper = (values + 64) & mask.splat(LANES)
        f.store((upper >> 7).cast("trunc", vector(I8, LANES)), out.hi(row).at(place))
        f.store((values - upper).cast("trunc", vector(I8, LANES)), out.lo(row).at(place))
    side = block * 4
    f.store(f.select(empty, zero, peak / most), out.scale(row).at(side), align=4)
    f.store(f.intrinsic("llvm.vector.reduce.add.v16i32", I32, q[0] + q[1]), out.sum(row).at(side), align=4)
    f.store(wide.cast("zext", I32), out.wide(row).at(side), align=4)
