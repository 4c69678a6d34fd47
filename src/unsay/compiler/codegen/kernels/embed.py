"""EMBED (N11): rows of a packed table for this step's tokens."""

from __future__ import annotations

from unsay.compiler.codegen.builder import F16, F32, I8, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    argument,
    index_at,
    kernel_parameters,
    leave_if_interrupted,
    share,
)
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_WEIGHTS, DType, group_block_bytes, weight_bytes

_QUAD = vector(F32, 4)


def embed(module: Module, dtype: DType, width: int) -> str:
    """Kernel (out f32 [T][width], table [V, width]): out = table[token]."""

    def write(f: Function) -> None:
        begin, end = share(f, f["count"])
        tokens = argument(f, "token_ids")
        with f.loop("token", begin, end) as token:
            leave_if_interrupted(f)
            row = index_at(f, tokens, token)
            group = f["table"].at(row // LANES * weight_bytes(dtype, LANES, width))
            out = f["out"].at(token * (width * 4))
            if dtype in QUANTISED_WEIGHTS:
                _quantised_row(f, dtype, width, group, row % LANES, out)
            else:
                _float_row(f, dtype, width, group, row % LANES, out)

    doc = f"out f32 [T][{width}] = rows of {dtype.name} [V, {width}] for the step's tokens"
    return module.define(f"embed_{dtype.name.lower()}_{width}", kernel_parameters("out", "table"), write, doc)


def _quantised_row(f: Function, dtype: DType, width: int, group: Value, lane: Value, out: Value) -> None:
    write_block = _byte_block if dtype is DType.Q8_0 else _nibble_block
    with f.loop("block", 0, width // QUANT_BLOCK) as block:
        write_block(f, dtype, group.at(block * group_block_bytes(dtype)), lane, out.at(block * (QUANT_BLOCK * 4)))


def _byte_block(f: Function, dtype: DType, block: Value, lane: Value, out: Value) -> None:
    d = _scale(f, block.at(512).at(lane * 2))
    for j in range(8):
        quad = f.load(vector(I8, 4), block.at(64 * j).at(lane * 4))
        f.store(quad.cast("sitofp", _QUAD) * d, out.at(16 * j), align=4)


def _nibble_block(f: Function, dtype: DType, block: Value, lane: Value, out: Value) -> None:
    d = _scale(f, block.at(256).at(lane * 2))
    m = _scale(f, block.at(288).at(lane * 2)) if dtype is DType.Q4_1 else None
    for j in range(4):
        quad = f.load(vector(I8, 4), block.at(64 * j).at(lane * 4))
        for first, nibbles in ((0, quad & 15), (16, quad >> 4)):
            f.store(_nibble_value(f, nibbles, d, m), out.at((first + 4 * j) * 4), align=4)


def _nibble_value(f: Function, nibbles: Value, d: Value, m: Value | None) -> Value:
    if m is not None:
        return f.fma(nibbles.cast("uitofp", _QUAD), d, m)
    return (nibbles - 8).cast("sitofp", _QUAD) * d


def _scale(f: Function, address: Value) -> Value:
    return f.load(F16, address, align=2).cast("fpext", F32).splat(4)


def _float_row(f: Function, dtype: DType, width: int, group: Value, lane: Value, out: Value) -> None:
    element = {DType.F32: F32, DType.F16: F16, DType.BF16: "i16"}[dtype]
    element_bytes = 4 if dtype is DType.F32 else 2
    with f.loop("k", 0, width) as k:
        value = f.load(element, group.at((k * LANES + lane) * element_bytes), align=element_bytes)
        if dtype is DType.F16:
            value = value.cast("fpext", F32)
        if dtype is DType.BF16:
            value = (value.cast("zext", "i32") << 16).cast("bitcast", F32)
        f.store(value, out.at(k * 4), align=4)
