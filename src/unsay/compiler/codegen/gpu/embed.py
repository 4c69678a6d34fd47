"""Embedding on a GPU: N11 of docs/numerics.md, a lane for each element."""

from __future__ import annotations

from unsay.compiler.codegen.gpu.functions import LANES, float_element
from unsay.compiler.codegen.gpu.lanes import F32, I32, Expr, Kernel, Memory, constant, fma, half, to_f32
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_WEIGHTS, ROW_GROUP, DType, group_block_bytes


def embed(dtype: DType, width: int) -> Kernel:
    """Grid: ceil(width / 64) x tokens. Buffers: table (packed), ids i32 [T], x f32 [T][width]."""
    k = Kernel(f"embed_{dtype.name}_{width}".lower(), LANES, f"x[t] = row ids[t] of a table of {dtype.name}")
    table = k.buffer("table", F32 if dtype is DType.F32 else I32)
    ids = k.buffer("ids", I32)
    x = k.buffer("x", F32, writes=True)
    column = k.let("column", k.group * LANES + k.lane)
    with k.when(column < width):
        token = k.let("token", ids[k.row])
        element = _block_element if dtype in QUANTISED_WEIGHTS else float_element
        x[k.row * width + column] = element(k, dtype, table, width, token, column)
    return k


def _block_element(k: Kernel, dtype: DType, table: Memory, width: int, row: Expr, column: Expr) -> Expr:
    words = group_block_bytes(dtype) // 4
    start = k.let("start", (row // ROW_GROUP * (width // QUANT_BLOCK) + column // QUANT_BLOCK) * words)
    place, lane = k.let("place", column % QUANT_BLOCK), k.let("r", row % ROW_GROUP)
    num_words = QUANT_BLOCK // 4 if dtype is DType.Q8_0 else QUANT_BLOCK // 8
    word = k.let("word", table[start + place // 4 % num_words * ROW_GROUP + lane])
    byte = k.let("byte", place % 4)
    q = (
        (word << (constant(I32, 24) - byte * 8)) >> 24
        if dtype is DType.Q8_0
        else (word >> (byte * 8 + place // 16 * 4)) & 15
    )
    scales = k.let("scales", start + num_words * ROW_GROUP + (lane >> 1))
    d = half(table[scales], lane & 1)
    if dtype is DType.Q4_1:
        return fma(to_f32(q), d, half(table[scales + ROW_GROUP // 2], lane & 1))
    return to_f32(q - 8 if dtype is DType.Q4_0 else q) * d
