"""The one thing a target defines: the int8 dot of a block of 16 rows x 32 columns with an activation block.

Every instruction gives the exact int32 sum, so the rest of every kernel is the same text for all targets:

    vpdpbusd    u8 x s8, four products into each i32 lane, no saturation
    vpmaddubsw  u8 x s8, two products into each saturating i16 lane, then vpmaddwd into i32:
                u4 * s8: |sum of 8 steps| <= 8 * 2 * 15 * 128 = 30720 fits i16, so one vpmaddwd serves a whole block
    vpmaddwd    s16 x s16, two products into each i32 lane: AVX2's way with s8 weights, whose sums would not fit i16
    sdot        s8 x s8, four products into each i32 lane
    smmla       s8 x s8, rows times tokens: 2 x 8 by 8 x 2 into four i32 lanes; a token alone takes sdot
    i16x8.dot   vpmaddwd on WebAssembly, for all weights

vpdpbusd takes unsigned weights: Q8_0 enters as w + 128, and 128 times the activation's sum is taken off after.
Where words are multiplied, activations come as 16 bits, wide blocks whole, and of four columns of weights the even ones
are widened first, then the odd ones: two shifts and one. So are the activations ordered (`WORD_ORDER`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unsay.compiler.codegen.builder import I8, I16, I32, Function, Module, Value, vector
from unsay.isa.formats import DType
from unsay.isa.targets import Target

Architecture: TypeAlias = Literal["x86", "aarch64", "wasm"]

_ARCHITECTURES: dict[str, Architecture] = {
    "vpdpbusd": "x86", "vpmaddubsw": "x86", "sdot": "aarch64", "smmla": "aarch64", "i16x8.dot": "wasm",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DotUnit:
    """How a target multiplies. tiles: numbers of tokens done together, largest first, each a divisor of the one before.

    emulated: vpdpbusd as plain arithmetic, to run the code of a target on a machine that lacks the instruction.
    amx: there are tile registers beside the vectors (tile_registers.py).
    """

    instruction: str
    vector_bytes: int
    tiles: tuple[int, ...]
    emulated: bool = False
    amx: bool = False

    @property
    def architecture(self) -> Architecture:
        """The family of machines that have the instruction."""
        return _ARCHITECTURES[self.instruction]

    @property
    def lanes(self) -> int:
        """Rows whose bytes one register holds, and whose i32 or f32 sums one register holds."""
        return self.vector_bytes // 4

    def offset(self, dtype: DType) -> int:
        """What `block_dot` adds to every weight; offset times the activation's sum is to be subtracted."""
        if dtype is DType.Q4_0:
            return 8
        return 128 if dtype is DType.Q8_0 and self.instruction == "vpdpbusd" else 0

    def takes_words(self, dtype: DType) -> bool:
        """Whether activations are int16 [32] in the order of columns `WORD_ORDER` to `block_dot`, else int8 [32]."""
        return self.instruction == "i16x8.dot" or (self.instruction == "vpmaddubsw" and dtype is DType.Q8_0)


WORD_ORDER = tuple(column + i for column in range(0, 32, 4) for i in (0, 2, 1, 3))
"""Column of each of the 32 words of an activation block."""

_UNITS = {
    "amx-int8": DotUnit("vpdpbusd", 64, (8, 2, 1), amx=True),
    "avx512-vnni": DotUnit("vpdpbusd", 64, (8, 2, 1)),
    "avx-vnni": DotUnit("vpdpbusd", 32, (4, 2, 1)),
    "avx2": DotUnit("vpmaddubsw", 32, (4, 2, 1)),
    "aarch64-i8mm": DotUnit("smmla", 16, (8, 2, 1)),
    "aarch64-dotprod": DotUnit("sdot", 16, (8, 2, 1)),
    "wasm32-simd128": DotUnit("i16x8.dot", 16, (2, 1)),
}


def dot_unit(target: Target) -> DotUnit:
    """The unit of a target."""
    return _UNITS[target.name]


def block_dot(
    f: Function,
    unit: DotUnit,
    dtype: DType,
    pieces: Sequence[Value],
    blocks: Sequence[Value],
    starts: Sequence[Value] | None = None,
) -> list[Value]:
    """<lanes x i32> for each piece and each activation block (address of 32 int8, or of 32 int16 where the unit takes
    words): exact dots with `unit.lanes` rows, plus `starts`; all blocks of the first piece, then those of the next.

    `pieces` are the addresses of rows' first bytes in a packed weight block. Written column by column, so that each
    register of weights and each few activations are loaded once and used for all that need them.
    """
    if unit.instruction == "smmla" and len(blocks) % 2 == 0:
        matrices = [_matrix_dots(f, dict(_unpacked(f, unit, dtype, piece)), blocks) for piece in pieces]
        return _added(starts, [dot for dots in matrices for dot in dots])
    step, finish = _ways(unit, dtype)
    registers, columns_of_x = (_words, _two_words) if unit.takes_words(dtype) else (_unpacked, _four_bytes)
    count = len(pieces) * len(blocks)
    sums: list[Value | None] = list(starts) if starts and finish is None else [None] * count
    for columns in zip(*(registers(f, unit, dtype, piece) for piece in pieces), strict=True):
        for place, block in enumerate(blocks):
            x = columns_of_x(f, unit, block, columns[0][0])
            for at, (_, values) in zip(range(place, count, len(blocks)), columns, strict=True):
                sums[at] = step(f, unit, sums[at], values, x)
    done = [total for total in sums if total is not None]
    return done if finish is None else _added(starts, [finish(f, total) for total in done])


def _four_bytes(f: Function, unit: DotUnit, block: Value, column: int) -> Value:
    """Four bytes of an activation block for every row; sdot takes them out of a register of 16 that one load fills."""
    if unit.architecture == "aarch64":
        four = f.load(vector(I32, 4), block.at(column // 16 * 16), align=16).shuffle([column % 16 // 4] * 4)
    else:
        four = f.load(I32, block.at(column), align=4).splat(unit.lanes)
    return four.cast("bitcast", vector(I8, unit.vector_bytes))


def _two_words(f: Function, unit: DotUnit, block: Value, place: int) -> Value:
    """Two words of an activation block for every row."""
    return f.load(vector(I16, 2), block.at(place * 2), align=4).shuffle([0, 1] * unit.lanes)


def _added(starts: Sequence[Value] | None, dots: list[Value]) -> list[Value]:
    return [start + dot for start, dot in zip(starts, dots, strict=True)] if starts else dots


def _unpacked(f: Function, unit: DotUnit, dtype: DType, weights: Value) -> Iterator[tuple[int, Value]]:
    """(first column, one byte per row and column) of four columns at a time, on AArch64 from left to right."""
    kind, align = vector(I8, unit.vector_bytes), min(unit.vector_bytes, 32)
    if dtype is DType.Q8_0:
        for j in range(8):
            loaded = f.load(kind, weights.at(64 * j), align)
            yield 4 * j, loaded ^ -128 if unit.offset(dtype) else loaded
        return
    at_once = 4 if unit.architecture == "aarch64" else 1
    for start in range(0, 4, at_once):
        nibbles = [(4 * j, f.load(kind, weights.at(64 * j), align)) for j in range(start, start + at_once)]
        yield from ((column, loaded & 15) for column, loaded in nibbles)
        yield from ((column + 16, loaded >> 4) for column, loaded in nibbles)


def _words(f: Function, unit: DotUnit, dtype: DType, weights: Value) -> Iterator[tuple[int, Value]]:
    """(place in WORD_ORDER, two words a row): of four columns the two even ones, then the two odd ones."""
    for column, values in _unpacked(f, unit, dtype, weights):
        pairs = values.cast("bitcast", vector(I16, unit.vector_bytes // 2))
        yield column, f.shifted_right(pairs << 8, 8)
        yield column + 2, f.shifted_right(pairs, 8)


Step: TypeAlias = Callable[[Function, DotUnit, "Value | None", Value, Value], Value]
"""(unit, sums so far, weights, activations) to sums."""


def _ways(unit: DotUnit, dtype: DType) -> tuple[Step, Callable[[Function, Value], Value] | None]:
    """How four columns are added, and what makes an i32 lane a row of the sums of a block, if they are not yet."""
    if unit.takes_words(dtype):
        return _dot_words, None
    match unit.instruction:
        case "vpdpbusd":
            return _dpbusd, None
        case "vpmaddubsw":
            return _maddubs, _widened
        case _:
            return _sdot, None


def _maddubs(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    pairs = f.intrinsic("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), weights, x)
    return pairs if total is None else total + pairs


def _widened(f: Function, pairs: Value) -> Value:
    """<8 x i32> sums of neighbours in <16 x i16>."""
    return f.intrinsic("llvm.x86.avx2.pmadd.wd", vector(I32, 8), pairs, f.constant(pairs.type, 1))


def _dpbusd(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    total = f.constant(vector(I32, unit.lanes), 0) if total is None else total
    if unit.emulated:
        return f.call(_emulated_dpbusd(f.module, unit.vector_bytes), total.type, total, weights, x)
    return f.intrinsic(f"llvm.x86.avx512.vpdpbusd.{unit.vector_bytes * 8}", total.type, total, weights, x)


def _emulated_dpbusd(module: Module, width: int) -> str:
    """vpdpbusd by its definition: each i32 lane plus four products of an unsigned and a signed byte."""
    lanes, wide = vector(I32, width // 4), vector(I32, width)

    def write(f: Function) -> None:
        products = f["weights"].cast("zext", wide) * f["x"].cast("sext", wide)
        total = f["total"]
        for byte in range(4):
            total = total + products.shuffle(range(byte, width, 4))
        f.result_value = total

    parameters = [(lanes, "total"), (vector(I8, width), "weights"), (vector(I8, width), "x")]
    name, doc = f"emulated_dpbusd_{width * 8}", "vpdpbusd by its definition"
    return module.define(name, parameters, write, doc, lanes, inline=False)


def _sdot(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    total = f.constant(vector(I32, 4), 0) if total is None else total
    return f.intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8", total.type, total, weights, x)


def _matrix_dots(f: Function, weights: dict[int, Value], blocks: Sequence[Value]) -> list[Value]:
    """Dots of 4 rows, four columns a register, with an even number of tokens: 2 rows x 2 tokens an smmla."""
    sums = [[f.constant(vector(I32, 4), 0)] * 2 for _ in blocks[::2]]
    for column in range(0, 32, 8):
        left, right = (weights[start].cast("bitcast", vector(I32, 4)) for start in (column, column + 4))
        eight = left.beside(right)
        rows = [eight.shuffle(lanes).cast("bitcast", vector(I8, 16)) for lanes in ([0, 4, 1, 5], [2, 6, 3, 7])]
        for pair, totals in enumerate(sums):
            x = _two_tokens(f, blocks[2 * pair].at(column), blocks[2 * pair + 1].at(column))
            for half in range(2):
                name, total = "llvm.aarch64.neon.smmla.v4i32.v16i8", totals[half]
                totals[half] = f.intrinsic(name, total.type, total, rows[half], x)
    return [low.beside(high).shuffle(range(token, 8, 2)) for low, high in sums for token in range(2)]


def _two_tokens(f: Function, first: Value, second: Value) -> Value:
    """8 bytes of each."""
    halves = [f.load(vector(I8, 8), address, align=8) for address in (first, second)]
    return halves[0].beside(halves[1])


def _dot_words(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    name = "llvm.wasm.dot" if unit.architecture == "wasm" else "llvm.x86.avx2.pmadd.wd"
    pairs = f.intrinsic(name, vector(I32, unit.lanes), weights, x)
    return pairs if total is None else total + pairs
