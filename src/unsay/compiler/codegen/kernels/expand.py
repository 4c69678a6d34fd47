"""A row group of any format as int8 with a scale per part of a row (N15), whole numbers -127..127, as it is multiplied.

    weights of a row group, as isa/formats.py packs it
    words   i32 [K/c][16 rows]                 of c columns in a row, the first in the low bits: pairs of i16 for
                                               vectors (whole.py), four int8 for tiles (amx.py)
    scales  f32 [parts of a row][16 rows]

Rows that are taken twice have both a second time, behind: what rounding left of them.

A lane is a row, so nothing goes across lanes: of a part, one pass finds the largest magnitude, another divides by it.
Magnitudes are compared as integers, which floats without a sign are in the order of; LLVM takes exponential time over a
chain of comparisons of floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unsay.compiler.codegen.builder import F16X16, F32X16, I32X16, PTR, Function, Module, Value
from unsay.compiler.codegen.kernels.rows import parts
from unsay.compiler.codegen.kernels.vector import LANES, load_floats
from unsay.isa.formats import (
    PART_COLUMNS,
    PART_WEIGHT_MOST,
    QUANT_BLOCK,
    QUANTISED_WEIGHTS,
    DType,
    group_block_bytes,
    num_parts,
    weight_bytes,
)

_SMALLEST = 2.0**-100
_FINER = 2.0 * PART_WEIGHT_MOST
"""Steps of what rounding left in a step of the weights: it is within half of one, hence -127..127 again."""


def expand_function(module: Module, dtype: DType, width: int, together: int, planes: int) -> str:
    """void expand(weights, words, scales). together: columns of a word; planes: 2 for rows that are taken twice."""
    columns, block_bytes = _block(dtype)
    assert width % columns == 0 and columns % together == 0, (dtype, width)
    word_bytes, scale_bytes = width // together * LANES * 4, num_parts(width) * LANES * 4

    def write(f: Function) -> None:
        for part, size in parts(f, width):
            weights = f["weights"].at(part * (PART_COLUMNS // columns * block_bytes))
            words = f["words"].at(part * (PART_COLUMNS // together * LANES * 4))
            scales = f["scales"].at(part * (LANES * 4))
            peak = _peak(f, dtype, weights, size // columns)
            most, zero = f.constant(F32X16, PART_WEIGHT_MOST), f.constant(F32X16, 0.0)
            empty = peak.compare("olt", _SMALLEST)
            inverse, d = f.select(empty, zero, most / peak), f.select(empty, zero, peak / most)
            for plane in range(planes):
                f.store(d / _FINER if plane else d, scales.at(plane * scale_bytes), align=64)
            with f.loop("block", 0, size // columns) as block:
                place = words.at(block * (columns // together * LANES * 4))
                rounded = (
                    _rounded(f, values, inverse, d, planes)
                    for values in _columns(f, dtype, weights.at(block * block_bytes))
                )
                for number, word in enumerate(zip(*[rounded] * together, strict=True)):
                    for plane, values in enumerate(zip(*word, strict=True)):
                        f.store(_packed(values), place.at(plane * word_bytes + number * LANES * 4), align=64)

    name = f"expand_{dtype.name.lower()}_k{width}_x{together}" + ("_twice" if planes == 2 else "")
    doc = f"a row group {dtype.name} [16, {width}] as int8, {together} columns in a word, and the scales of its rows"
    return module.define(name, [(PTR, "weights"), (PTR, "words"), (PTR, "scales")], write, doc, inline=False)


def _peak(f: Function, dtype: DType, weights: Value, num_blocks: int) -> Value:
    """The largest magnitude of each row in so many blocks."""
    bits = f.slot(I32X16, 0)
    _, block_bytes = _block(dtype)
    with f.loop("block", 0, num_blocks) as block:
        for values in _columns(f, dtype, weights.at(block * block_bytes)):
            magnitude = values.cast("bitcast", I32X16) & 0x7FFF_FFFF
            bits.set(f.intrinsic("llvm.umax.v16i32", I32X16, magnitude, bits.get()))
    return bits.get().cast("bitcast", F32X16)


def _packed(columns: Sequence[Value]) -> Value:
    """The low bits of each, as many as there is room for, side by side in 32."""
    bits = 32 // len(columns)
    *others, word = (column << place * bits for place, column in enumerate(columns))
    for place, column in enumerate(others):
        word = word | (column & ((1 << bits) - 1) << place * bits)
    return word


def _rounded(f: Function, values: Value, inverse: Value, d: Value, planes: int) -> list[Value]:
    """Weights in steps of d; of two planes, also what that left of them, in finer steps."""
    made = [f.unary("roundeven", values * inverse)]
    if planes == 2:
        made.append(f.unary("roundeven", f.fma(-made[0], d, values) * (inverse * _FINER)))
    return [plane.cast("fptosi", I32X16) for plane in made]


def _block(dtype: DType) -> tuple[int, int]:
    """Columns taken at a time, and their bytes."""
    if dtype in QUANTISED_WEIGHTS:
        return QUANT_BLOCK, group_block_bytes(dtype)
    return LANES, weight_bytes(dtype, LANES, LANES)


def _columns(f: Function, dtype: DType, weights: Value) -> Iterator[Value]:
    """The columns of a block from left to right, each <16 x float>: the weights as N11 has them."""
    if dtype not in QUANTISED_WEIGHTS:
        for column in range(LANES):
            yield load_floats(f, dtype, weights.at(column * weight_bytes(dtype, LANES, 1)))
        return
    scales = weights.at(512 if dtype is DType.Q8_0 else 256)
    d = f.load(F16X16, scales, align=2).cast("fpext", F32X16)
    m = f.load(F16X16, scales.at(32), align=2).cast("fpext", F32X16) if dtype is DType.Q4_1 else None
    for q in _integers(f, dtype, weights):
        whole = q.cast("sitofp", F32X16)
        yield whole * d if m is None else f.fma(whole, d, m)


def _integers(f: Function, dtype: DType, weights: Value) -> Iterator[Value]:
    """The columns of a quantised block from left to right, each <16 x i32>: byte i of a word is of column 4j + i."""
    if dtype is DType.Q8_0:
        for j in range(8):
            word = f.load(I32X16, weights.at(64 * j), align=4)
            yield from ((((word >> 8 * i) & 0xFF) ^ 0x80) - 0x80 for i in range(4))
        return
    offset = 8 if dtype is DType.Q4_0 else 0
    words = [f.load(I32X16, weights.at(64 * j), align=4) for j in range(4)]
    for half in (0, 4):
        for word in words:
            yield from (((word >> 8 * i + half) & 15) - offset for i in range(4))
