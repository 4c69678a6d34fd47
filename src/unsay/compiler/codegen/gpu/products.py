"""Matrix products on a GPU: N4 to N6 of docs/numerics.md, a lane for each output.

Memory is as the CPU has it (isa/formats.py), seen as 32-bit words, so packed weights are copied to a GPU as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from unsay.compiler.codegen.gpu.functions import LANES, QuantisedRows, float_element
from unsay.compiler.codegen.gpu.lanes import F32, I32, Expr, Kernel, Memory, Var, as_f32, dot4, fma, half, to_f32
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_WEIGHTS, ROW_GROUP, DType, group_block_bytes

_WORDS = QUANT_BLOCK // 4
_NIBBLES = 0x0F0F0F0F


@dataclass(frozen=True, slots=True)
class Gemv:
    """y[t] = W x[t] (+ bias) (+ y[t]) for each row t of x: W [N, K] of `dtype`, x of `x_dtype` with room for `capacity`
    rows."""

    dtype: DType
    num_rows: int
    num_columns: int
    x_dtype: DType
    capacity: int
    bias: bool = False
    accumulate: bool = False

    @property
    def name(self) -> str:
        """For the kernel."""
        ending = ("_bias" if self.bias else "") + ("_add" if self.accumulate else "")
        shape = f"{self.num_rows}x{self.num_columns}_{self.x_dtype.name}_t{self.capacity}"
        return f"gemv_{self.dtype.name}_{shape}{ending}".lower()


def gemv(shape: Gemv) -> Kernel:
    """Grid: ceil(N / 64) x rows of x. Buffers: w, x, y f32 [T][N], and bias f32 [N] where there is one."""
    doc = f"y[t] = W x[t], W {shape.dtype.name} [{shape.num_rows}, {shape.num_columns}], x {shape.x_dtype.name}"
    k = Kernel(shape.name, LANES, doc)
    quantised = shape.dtype in QUANTISED_WEIGHTS
    w = k.buffer("w", F32 if shape.dtype is DType.F32 else I32)
    x = k.buffer("x", I32 if quantised else F32)
    y = k.buffer("y", F32, writes=True)
    bias = k.buffer("bias", F32) if shape.bias else None
    n = k.let("n", k.group * LANES + k.lane)
    with k.when(n < shape.num_rows):
        acc = k.var("acc", F32, 0.0)
        (_add_blocks if quantised else _add_floats)(k, shape, w, x, n, acc)
        result = acc.get() if bias is None else acc.get() + bias[n]
        place = k.let("place", k.row * shape.num_rows + n)
        y[place] = y[place] + result if shape.accumulate else result
    return k


def _add_floats(k: Kernel, shape: Gemv, w: Memory, x: Memory, n: Expr, acc: Var) -> None:
    """N5."""
    columns = shape.num_columns
    with k.loop("i", 0, columns) as i:
        weight = float_element(k, shape.dtype, w, columns, n, i)
        acc.set(fma(weight, x[k.row * columns + i], acc.get()))


def _add_blocks(k: Kernel, shape: Gemv, w: Memory, x: Memory, n: Expr, acc: Var) -> None:
    """N4."""
    blocks = shape.num_columns // QUANT_BLOCK
    block_words = group_block_bytes(shape.dtype) // 4
    row = k.let("r", n % ROW_GROUP)
    rows = QuantisedRows(shape.capacity, blocks, k.row)
    with k.loop("b", 0, blocks) as b:
        start = k.let("start", (n // ROW_GROUP * blocks + b) * block_words)
        quants = [k.let("q", q) for q in _quants(shape.dtype, w, k.let("at", start + row))]
        dot = _dot(k, quants, x, k.let("lo", rows.lo(b)))
        if shape.x_dtype is DType.Q8W:
            high = k.var("high", I32, 0)
            with k.when(x[rows.wide(b)] > 0):
                high.set(_dot(k, quants, x, k.let("hi", rows.hi(b))))
            dot = k.let("dot", dot + (high.get() << 7))
        total = k.let("sum", x[rows.sum(b)])
        if shape.dtype is DType.Q4_0:
            dot = dot - total * 8
        scales = k.let(
            "scales", start + (row >> 1) + ROW_GROUP * (_WORDS if shape.dtype is DType.Q8_0 else _WORDS // 2)
        )
        scale = k.let("scale", as_f32(x[rows.scale(b)]))
        acc.set(fma(to_f32(dot), half(w[scales], row & 1) * scale, acc.get()))
        if shape.dtype is DType.Q4_1:
            acc.set(fma(half(w[scales + ROW_GROUP // 2], row & 1), scale * to_f32(total), acc.get()))


def _quants(dtype: DType, w: Memory, start: Expr) -> list[Expr]:
    """The 32 integers of a block of one row, four in a word, in the order of k."""
    if dtype is DType.Q8_0:
        return [w[start + ROW_GROUP * j] for j in range(_WORDS)]
    words = [w[start + ROW_GROUP * j] for j in range(_WORDS // 2)]
    return [word & _NIBBLES for word in words] + [(word >> 4) & _NIBBLES for word in words]


def _dot(k: Kernel, quants: list[Expr], x: Memory, start: Expr) -> Expr:
    dot: Expr | int = 0
    for j, q in enumerate(quants):
        dot = k.let("dot", dot4(q, x[start + j], dot))
    assert isinstance(dot, Expr), "a block has 8 words"
    return dot
