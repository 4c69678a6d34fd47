"""The one thing a target defines: the int8 dot of a block of 16 rows x 32 columns with an activation block.

Both instruction families give the exact int32 sum, so the rest of every kernel is the same text for all targets:

    vnni     vpdpbusd: u8 x s8, four products into each i32 lane, no saturation
    maddubs  vpmaddubsw: u8 x s8, two products into each saturating i16 lane, then vpmaddwd into i32:
             u4 * s8: |sum of 8 steps| <= 8 * 2 * 15 * 128 = 30720 fits i16, so one vpmaddwd serves a whole block
             (added by vpaddsw, which never saturates here and which LLVM leaves in the order it is written);
             s8 * s8: |w| * sign(w) x, one step <= 2 * 128 * 127 = 32512 fits (an activation is never -128)

vnni takes unsigned weights: Q8_0 enters as w + 128, and 128 times the activation's sum is taken off after.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.builder import BOOL, I8, I16, I32, Function, Module, Value, vector
from unsay.isa.formats import DType
from unsay.isa.targets import Target


@dataclass(frozen=True, slots=True)
class DotUnit:
    """How a target multiplies. tiles: numbers of tokens done together, largest first, whose sums fit its registers.

    emulated: vpdpbusd as plain arithmetic, to run the code of a target on a machine that lacks the instruction.
    """

    vnni: bool
    vector_bytes: int
    tiles: tuple[int, ...]
    emulated: bool = False

    @property
    def lanes(self) -> int:
        """Rows whose bytes one register holds, and whose i32 or f32 sums one register holds."""
        return self.vector_bytes // 4

    def offset(self, dtype: DType) -> int:
        """What `block_dot` adds to every weight; offset times the activation's sum is to be subtracted."""
        if dtype is DType.Q4_0:
            return 8
        return 128 if dtype is DType.Q8_0 and self.vnni else 0


def dot_unit(target: Target) -> DotUnit:
    """The unit of a target."""
    return DotUnit("vnni" in target.name, target.vector_bytes, (8, 2, 1) if target.vector_bytes == 64 else (6, 2, 1))


def block_dot(
    f: Function,
    unit: DotUnit,
    dtype: DType,
    weights: Value,
    blocks: Sequence[Value],
    starts: Sequence[Value] | None = None,
) -> list[Value]:
    """<lanes x i32> for each activation block (address of 32 int8): exact dots with `unit.lanes` rows, plus `starts`.

    `weights` is the address of the rows' first bytes in a packed weight block. Written column by column, so that
    each register of weights is loaded once and used for every token.
    """
    signed = dtype is DType.Q8_0
    in_lanes = signed or unit.vnni
    sums: list[Value | None] = list(starts) if starts and in_lanes else [None] * len(blocks)
    step = _signed_step if signed and not unit.vnni else _unsigned_step
    for columns, values in _unpacked(f, unit, dtype, weights):
        for place, block in enumerate(blocks):
            x = f.load(I32, block.at(columns), align=4).splat(unit.lanes)
            sums[place] = step(f, unit, sums[place], values, x.cast("bitcast", values.type))
    done = [total for total in sums if total is not None]
    if in_lanes:
        return done
    widened = [_widened(f, total) for total in done]
    return [start + total for start, total in zip(starts, widened, strict=True)] if starts else widened


def _unpacked(f: Function, unit: DotUnit, dtype: DType, weights: Value) -> Iterator[tuple[int, Value]]:
    """(first column, one byte per row and column) of four columns at a time."""
    kind = vector(I8, unit.vector_bytes)
    for j in range(8 if dtype is DType.Q8_0 else 4):
        loaded = f.load(kind, weights.at(64 * j), align=32)
        if dtype is DType.Q8_0:
            yield 4 * j, loaded ^ -128 if unit.vnni else loaded
        else:
            yield 4 * j, loaded & 15
            yield 4 * j + 16, loaded >> 4


def _unsigned_step(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    if unit.vnni:
        lanes = vector(I32, unit.vector_bytes // 4)
        return _dpbusd(f, unit, f.constant(lanes, 0) if total is None else total, weights, x)
    pairs = f.intrinsic("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), weights, x)
    return pairs if total is None else f.intrinsic("llvm.sadd.sat.v16i16", pairs.type, total, pairs)


def _signed_step(f: Function, unit: DotUnit, total: Value | None, weights: Value, x: Value) -> Value:
    magnitude = f.intrinsic("llvm.abs.v32i8", weights.type, weights, f.constant(BOOL, 0))
    signed = f.intrinsic("llvm.x86.avx2.psign.b", x.type, x, weights)
    pairs = _widened(f, f.intrinsic("llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), magnitude, signed))
    return pairs if total is None else total + pairs


def _widened(f: Function, pairs: Value) -> Value:
    """<8 x i32> sums of neighbours in <16 x i16>."""
    return f.intrinsic("llvm.x86.avx2.pmadd.wd", vector(I32, 8), pairs, f.constant(pairs.type, 1))


def _dpbusd(f: Function, unit: DotUnit, total: Value, weights: Value, x: Value) -> Value:
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
