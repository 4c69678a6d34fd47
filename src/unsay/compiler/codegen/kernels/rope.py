"""ROPE (N8), alone and as the epilogue of the QKV product."""

from __future__ import annotations

from dataclasses import dataclass, replace

from unsay.compiler.codegen.builder import BOOL, F32X16, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.matmul import row_loop
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    argument,
    index_at,
    kernel_parameters,
    leave_if_interrupted,
    share,
)

_SWAPPED = [lane ^ 1 for lane in range(LANES)]
_EVEN = [lane & ~1 for lane in range(LANES)]
_ODD = [lane | 1 for lane in range(LANES)]


@dataclass(frozen=True, slots=True)
class Heads:
    """`num_rotated` heads of `head_dim` columns from `column` on, in rows of `width` columns."""

    num_rotated: int
    head_dim: int
    column: int
    width: int


def rope(module: Module, heads: Heads) -> str:
    """Kernel (x f32 [T][width], table f32 [context][D/2][2]): rotate the heads in place."""

    def write(f: Function) -> None:
        positions = argument(f, "positions")
        begin, end = share(f, f["count"])
        with f.loop("token", begin, end) as token:
            leave_if_interrupted(f)
            position = index_at(f, positions, token)
            row = f["x"].at(token * (heads.width * 4) + heads.column * 4)
            with f.loop("column", 0, heads.num_rotated * heads.head_dim, LANES) as column:
                x = f.load(F32X16, row.at(column * 4), align=4)
                f.store(rotated(f, x, f["table"], position, column, heads.head_dim), row.at(column * 4), align=4)

    name = f"rope_{heads.num_rotated}x{heads.head_dim}_at{heads.column}_of{heads.width}"
    doc = f"rotate {heads.num_rotated} heads of {heads.head_dim} in x f32 [T][{heads.width}] from column {heads.column}"
    return module.define(name, kernel_parameters("x", "table"), write, doc)


def qkv(module: Module, unit: DotUnit, product: Product, heads: Heads, bias: bool) -> str:
    """Kernel (out f32 [T][N], x, weights, table[, bias]): out = W x (+ bias), the first `num_rotated` heads rotated."""

    def write(f: Function) -> None:
        positions = argument(f, "positions")

        def finish(group: Value, token: Value, sums: list[Value]) -> None:
            column = group * LANES
            y = sums[0]
            if bias:
                y = y + f.load(F32X16, f["bias"].at(column * 4), align=4)
            result = f.slot(F32X16, y)
            with f.when(column.compare("slt", heads.num_rotated * heads.head_dim)):
                position = index_at(f, positions, token)
                result.set(rotated(f, y, f["table"], position, column, heads.head_dim))
            f.store(result.get(), f["out"].at(token * (heads.width * 4)).at(column * 4), align=4)

        num_fine = product.num_rows - heads.num_rotated * heads.head_dim
        row_loop(f, unit, replace(product, num_fine=num_fine), 1, finish)

    pointers = ("out", "x", "weights", "table", *(("bias",) if bias else ()))
    name = f"qkv_{product.name}_r{heads.num_rotated}x{heads.head_dim}" + ("_bias" if bias else "")
    doc = f"out f32 [T][{heads.width}] = W x, the first {heads.num_rotated} heads of {heads.head_dim} rotated"
    return module.define(name, kernel_parameters(*pointers), write, doc)


def rotated(f: Function, x: Value, table: Value, position: Value, column: Value, head_dim: int) -> Value:
    """16 columns, pairs adjacent: a' = fma(a, cos, -(b * sin)); b' = fma(b, cos, a * sin)."""
    entry = position * (head_dim * 4) + column % head_dim * 4
    pairs = f.load(F32X16, table.at(entry), align=4)
    cos, sin = pairs.shuffle(_EVEN), pairs.shuffle(_ODD)
    crossed = x.shuffle(_SWAPPED) * sin
    even = ", ".join(f"i1 {int(lane % 2 == 0)}" for lane in range(LANES))
    is_even = Value(f, vector(BOOL, LANES), f"<{even}>")
    return f.fma(x, cos, f.select(is_even, -crossed, crossed))
