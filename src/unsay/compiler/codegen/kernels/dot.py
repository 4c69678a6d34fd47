"""The one thing a target defines: the int8 dot of a block of 16 rows x 32 columns with an activation block.

Every instruction gives the exact int32 sum, so the rest of every kernel is the same text for all targets:

    vpdpbusd    u8 x s8, four products into each i32 lane, no saturation
    vpmaddubsw  u8 x s8, two products into each saturating i16 lane, then vpmaddwd into i32:
                u4 * s8: |sum of 8 steps| <= 8 * 2 * 15 * 128 = 30720 fits i16, so one vpmaddwd serves a whole block
                (added by vpaddsw, which never saturates here and which LLVM leaves in the order it is written);
                s8 * s8: |w| * sign(w) x, one step <= 2 * 128 * 127 = 32512 fits (an activation is never -128)
    sdot        s8 x s8, four products into each i32 lane
    smmla       s8 x s8, rows times tokens: 2 x 8 by 8 x 2 into four i32 lanes; a token alone takes sdot
    i16x8.dot   s16 x s16, two products into each i32 lane; bytes are widened first, lanes paired after the block

vpdpbusd takes unsigned weights: Q8_0 enters as w + 128, and 128 times the activation's sum is taken off after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unsay.compiler.codegen.builder import BOOL, I8, I16, I32, Function, Module, Value, vector
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
    """

    instruction: str
    vector_bytes: int
    tiles: tuple[int, ...]
    emulated: bool = False

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


_UNITS = {
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
    """<lanes x i32> for each piece and each activation block (address of 32 int8): exact dots with `unit.lanes` rows,
    plus `starts`; all blocks of the first piece, then those of the next.

    `pieces` are the addresses of rows' first bytes in a packed weight block. Written column by column, so that each
    register of weights and each four activations are loaded once and used for all that need them.
    """
    if unit.instruction == "smmla" and len(blocks) % 2 == 0:
        matrices = [_matrix_dots(f, dict(_unpacked(f, unit, dtype, piece)), blocks) for piece in pieces]
        return _added(starts, [dot for dots in matrices for dot in dots])
    step, finish = _ways(unit, signed=dtype is DType.Q8_0)
    count = len(pieces) * len(blocks)
    sums: list[Value | None] = list(starts) if starts and finish is None else [None] * count
    for columns in zip(*(_unpacked(f, unit, dtype, piece) for piece in pieces), strict=True):
        for place, block in enumerate(blocks):
            first, weights = columns[0]
            x = _four_columns(f, unit, block, first).cast("bitcast", weights.type)
            for at, (_, values) in zip(range(place, count, len(blocks)), columns, strict=True):
                sums[at] = step(f, unit, sums[at], values, x)
    done = [total for total in sums if total is not None]
    return done if finish is None else _added(starts, [finish(f, total) for total in done])


def _four_columns(f: Function, unit: DotUnit, block: Value, columns: int) -> Value:
    """Four bytes of an activation block for every row; sdot takes them out of a register of 16 that one load fills."""
    if unit.architecture != "aarch64":
        return f.load(I32, block.at(columns), align=4).splat(unit.lanes)
    return f.load(vector(I32, 4), block.at(columns // 16 * 16), align=16).shuffle([columns % 16 // 4] * 4)


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


Step: TypeAlias = Callable[[Function, DotUnit, "Value | None", Value, Value], Value]
"""(unit, sums so far, weights, activations) to sums."""


def _ways(unit: DotUnit, signed: bool) -> tuple[Step, Callable[[Function, Value], Value] | None]:
    """How four columns are added, and what makes an i32 lane a row of the sums of a block, if they are not yet."""
    match unit.instruction:
        case "vpdpbusd":
            return _dpbusd, None
        case "vpmaddubsw":
            return (_signed_maddubs, None) if signed else (_maddubs, _widened)
        case "i16x8.dot":
            return _dot_i16, _paired
        case _:
            return _sdot, None


def _maddubs(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    pairs = f.intrinsic("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), weights, x)
    return pairs if total is None else f.intrinsic("llvm.sadd.sat.v16i16", pairs.type, total, pairs)


def _signed_maddubs(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    magnitude = f.intrinsic("llvm.abs.v32i8", weights.type, weights, f.constant(BOOL, 0))
    signed = f.intrinsic("llvm.x86.avx2.psign.b", x.type, x, weights)
    pairs = _widened(f, f.intrinsic("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), magnitude, signed))
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


def _dot_i16(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    """<8 x i32>: two neighbouring lanes for each of 4 rows."""
    halves: list[Value] = []
    for lanes in (range(8), range(8, 16)):
        pair = [bytes_.shuffle(lanes).cast("sext", vector(I16, 8)) for bytes_ in (weights, x)]
        halves.append(f.intrinsic("llvm.wasm.dot", vector(I32, 4), *pair))
    both = halves[0].beside(halves[1])
    return both if total is None else total + both


def _paired(f: Function, lanes: Value) -> Value:
    """<4 x i32> sums of neighbours in <8 x i32>."""
    return lanes.shuffle(range(0, 8, 2)) + lanes.shuffle(range(1, 8, 2))
