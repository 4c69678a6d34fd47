"""What a step does to whole rows, on a GPU: RMS norm, quantising, RoPE, SiLU times, sum. N3, N7, N8, N10."""

from __future__ import annotations

from typing import Literal

from unsay.compiler.codegen.gpu.functions import LANES, SUM_LANES, QuantisedRows, exp, name_of, tree_sum
from unsay.compiler.codegen.gpu.lanes import (
    F32,
    I32,
    Expr,
    Kernel,
    Memory,
    absolute,
    as_i32,
    choose,
    constant,
    fma,
    round_even,
    sqrt,
    to_i32,
)
from unsay.isa.formats import QUANT_BLOCK, ROW_GROUP, WIDE_FACTOR, DType


def rms_norm(width: int, eps: float, *, chosen_rows: bool = False) -> Kernel:
    """y[t] = x[t] / sqrt(mean(x[t]^2) + eps) * gamma: N7, a group for each row.

    Grid: 1 x rows. Buffers: x, gamma f32 [width], y f32 [T][width]; with chosen_rows, chosen i32 [R]: x[chosen[t]].
    """
    name = f"rms_norm_{width}_{name_of(eps)}" + "_rows" * chosen_rows
    k = Kernel(name, LANES, f"y[t] = x[t] / sqrt(mean(x[t]^2) + {eps}) * gamma, rows of {width}")
    x, gamma, y = k.buffer("x", F32), k.buffer("gamma", F32), k.buffer("y", F32, writes=True)
    source = k.buffer("chosen", I32)[k.row] if chosen_rows else k.row
    partial = k.shared("partial", F32, SUM_LANES)
    start = k.let("start", source * width)
    with k.when(k.lane < SUM_LANES):
        total = k.var("total", F32, 0.0)
        with k.loop("i", k.lane, width, SUM_LANES) as i:
            value = k.let("value", x[start + i])
            total.set(fma(value, value, total.get()))
        partial[k.lane] = total.get()
    k.barrier()
    mean = tree_sum(k, [partial[lane] for lane in range(SUM_LANES)]) / float(width)
    gain = k.let("gain", constant(F32, 1.0) / sqrt(mean + eps))
    with k.loop("i", k.lane, width, LANES) as i:
        y[k.row * width + i] = (x[start + i] * gain) * gamma[i]
    return k


def quantise(dtype: DType, width: int, capacity: int) -> Kernel:
    """y = x as Q8A or Q8W with room for `capacity` rows: N3, N3w, a lane for each block.

    Grid: ceil(width / 32 / 64) x rows. Buffers: x f32 [T][width], y.
    """
    k = Kernel(f"quantise_{dtype.name}_{width}_t{capacity}".lower(), LANES, f"y = x as {dtype.name}, rows of {width}")
    x, y = k.buffer("x", F32), k.buffer("y", I32, writes=True)
    b = k.let("b", k.group * LANES + k.lane)
    blocks = width // QUANT_BLOCK
    with k.when(b < blocks):
        start = k.let("start", k.row * width + b * QUANT_BLOCK)
        values = [k.let("value", x[start + i]) for i in range(QUANT_BLOCK)]
        magnitudes = [k.let("magnitude", absolute(value)) for value in values]
        amax = _largest(k, magnitudes)
        wide = _is_wide(k, magnitudes, amax) if dtype is DType.Q8W else None
        most = constant(F32, 127.0) if wide is None else k.let("most", choose(wide, 16256.0, constant(F32, 127.0)))
        empty = k.let("empty", amax < 2.0**-100)
        inverse = k.let("inverse", choose(empty, 0.0, most / amax))
        quants = [k.let("q", to_i32(round_even(value * inverse))) for value in values]
        rows = QuantisedRows(capacity, blocks, k.row)
        y[rows.scale(b)] = as_i32(choose(empty, 0.0, amax / most))
        y[rows.sum(b)] = _total(k, quants)
        if wide is not None:
            highs = [k.let("high", choose(wide, (q + 64) >> 7, constant(I32, 0))) for q in quants]
            quants = [k.let("low", q - (high << 7)) for q, high in zip(quants, highs, strict=True)]
            _store_bytes(y, rows.hi(b), highs)
            y[rows.wide(b)] = choose(wide, 1, constant(I32, 0))
        _store_bytes(y, rows.lo(b), quants)
    return k


def _largest(k: Kernel, values: list[Expr]) -> Expr:
    top = values[0]
    for value in values[1:]:
        top = k.let("amax", choose(value > top, value, top))
    return top


def _is_wide(k: Kernel, magnitudes: list[Expr], amax: Expr) -> Expr:
    """A >= 2^-100 and 4.5 A > S; a block that fails the first is empty, where both give zeros."""
    pairs = zip(magnitudes[:SUM_LANES], magnitudes[SUM_LANES:], strict=True)
    total = tree_sum(k, [k.let("s", low + high) for low, high in pairs])
    return k.let("wide", amax * WIDE_FACTOR > choose(amax < 2.0**-100, amax * WIDE_FACTOR, total))


def _total(k: Kernel, quants: list[Expr]) -> Expr:
    total = quants[0]
    for q in quants[1:]:
        total = k.let("sum", total + q)
    return total


def _store_bytes(y: Memory, start: Expr, quants: list[Expr]) -> None:
    """Integers of -128..127, four in a word."""
    for word in range(len(quants) // 4):
        a, b, c, d = ((q & 255) << (8 * place) for place, q in enumerate(quants[4 * word : 4 * word + 4]))
        y[start + word] = a | b | c | d


def rope(width: int, num_heads: int, head_dim: int, column: int) -> Kernel:
    """Rotate, in place, the pairs of heads from `column` on of each row: N8, a lane for each pair.

    Grid: ceil(heads D / 2 / 64) x tokens. Buffers: x f32 [T][width], table f32 [context][D/2][2], positions i32 [T].
    """
    k = Kernel(f"rope_{num_heads}x{head_dim}_{column}of{width}", LANES, f"turn the pairs of {num_heads} heads")
    x, table, positions = k.buffer("x", F32, writes=True), k.buffer("table", F32), k.buffer("positions", I32)
    pair = k.let("pair", k.group * LANES + k.lane)
    with k.when(pair < num_heads * head_dim // 2):
        angle = k.let("angle", positions[k.row] * head_dim + pair % (head_dim // 2) * 2)
        cos, sin = k.let("cos", table[angle]), k.let("sin", table[angle + 1])
        place = k.let("place", k.row * width + column + pair * 2)
        a, b = k.let("a", x[place]), k.let("b", x[place + 1])
        x[place] = fma(a, cos, -(b * sin))
        x[place + 1] = fma(b, cos, a * sin)
    return k


def silu_mul(width: int, source: Literal["alternate", "separate"]) -> Kernel:
    """y = silu(gate) * up: N10, a lane for each element. Grid: ceil(width / 64) x rows.

    Buffers: gate, up, y f32 [T][width]; of an alternate source gate_up f32 [T][2 width], 16 of gate then 16 of up; y.
    """
    k = Kernel(f"silu_mul_{source}_{width}", LANES, "y = gate / (1 + exp(-gate)) * up")
    gate = k.buffer("gate_up" if source == "alternate" else "gate", F32)
    up = gate if source == "alternate" else k.buffer("up", F32)
    y = k.buffer("y", F32, writes=True)
    i = k.let("i", k.group * LANES + k.lane)
    with k.when(i < width):
        place = k.let("place", k.row * width + i)
        at = place if source == "separate" else k.let("at", place * 2 - i % ROW_GROUP)
        g = k.let("g", gate[at])
        u = up[at + ROW_GROUP] if source == "alternate" else up[at]
        y[place] = (g / (exp(k, -g) + 1.0)) * u
    return k


def add(width: int) -> Kernel:
    """y = a + b, a lane for each element. Grid: ceil(width / 64) x rows. Buffers: a, b, y f32 [T][width]."""
    k = Kernel(f"add_{width}", LANES, "y = a + b")
    a, b, y = k.buffer("a", F32), k.buffer("b", F32), k.buffer("y", F32, writes=True)
    i = k.let("i", k.group * LANES + k.lane)
    with k.when(i < width):
        place = k.let("place", k.row * width + i)
        y[place] = a[place] + b[place]
    return k
