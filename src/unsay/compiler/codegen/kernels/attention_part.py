"""The inside of attention (N9): what one part of 256 keys gives the G query heads of a KV head, and how parts merge.

A state is what a part leaves for G heads: o f32 [G][D] | m f32 [G] | l f32 [G].
Keys of a page are [D][16], so a vector is one dim of 16 tokens; values are [16][D] (isa/kv.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unsay.compiler.codegen.builder import F32, F32X16, I8, I32, I32X16, I64, PTR, Function, Module, Slot, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import LANES, exp, index_at, largest, load_floats, maximum, tree_sum
from unsay.core import PAGE_TOKENS
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

PART_TOKENS = 256
_LINE_BYTES = 64

_HEADS_AT_ONCE = {64: 8, 32: 3, 16: 2}
"""Heads whose sums fit the registers, by bytes of a register: up to 4 x 16 lanes a head; 32, 16 and 32 registers."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Shape of an ATTN: q, k, v are columns of f32 rows of q_width, k_width, v_width; out [capacity, H*D]."""

    layout: KvLayout
    num_heads: int
    scale: float
    q_column: int
    k_column: int
    v_column: int
    q_width: int
    k_width: int
    v_width: int
    out_dtype: DType
    capacity: int

    @property
    def group(self) -> int:
        """G: query heads per KV head."""
        return self.num_heads // self.layout.num_kv_heads

    @property
    def state_bytes(self) -> int:
        """Bytes of a state."""
        return state_bytes(self.group, self.layout.head_dim)

    @property
    def name(self) -> str:
        """For function names."""
        columns = f"{self.q_column}of{self.q_width}_{self.k_column}of{self.k_width}_{self.v_column}of{self.v_width}"
        return f"{self.num_heads}h{self.layout.num_kv_heads}x{self.layout.head_dim}_{columns}"


def state_bytes(group: int, head_dim: int) -> int:
    """Bytes of the state of G heads, whole cache lines."""
    return -(-group * (head_dim + 2) * 4 // 64) * 64


def part_function(module: Module, unit: DotUnit, shape: Attention) -> str:
    """void part(pool, page table, q f32 [G][D], part, position, state)."""
    dim = shape.layout.head_dim

    def write(f: Function) -> None:
        weights = f.buffer(shape.group * PART_TOKENS * 4)
        keys = f.smaller(f["position"] + 1 - f["part"] * PART_TOKENS, PART_TOKENS)
        pages = (keys + (PAGE_TOKENS - 1)) // PAGE_TOKENS
        at_once = _HEADS_AT_ONCE[unit.vector_bytes]
        for first in range(0, shape.group, at_once):
            heads = range(first, min(first + at_once, shape.group))
            _scores(f, shape, heads, keys, pages, weights)
            _values(f, shape, heads, keys, pages, weights)

    name = f"attend_part_{shape.group}x{dim}_p{shape.layout.page_bytes}_{shape.scale.hex()[4:]}"
    parameters = [(PTR, "pool"), (PTR, "table"), (PTR, "q"), (I64, "part"), (I64, "position"), (PTR, "state")]
    doc = f"state of {shape.group} heads of {dim} over the keys of one part, up to `position`"
    return module.define(clean_name(name), parameters, write, doc)


def _scores(f: Function, shape: Attention, heads: range, keys: Value, pages: Value, weights: Value) -> None:
    """e[t] = exp(s[t] - m), times the value's scale if it has one, to `weights` f32 [G][256]; m and l to the state."""
    dim, dim_bytes = shape.layout.head_dim, PAGE_TOKENS * shape.layout.element_bytes
    lanes = Value(f, I32X16, f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>")
    minus_infinity = Value(f, F32X16, "splat (float 0xFFF0000000000000)")
    best = [f.slot(F32X16, minus_infinity) for _ in heads]
    with f.loop("page", 0, pages) as page:
        address = part_page(f, shape, page)
        sums = [(f.slot(F32X16, 0.0), f.slot(F32X16, 0.0)) for _ in heads]
        following = f.smaller(page + 1, pages - 1)
        next_address = part_page(f, shape, following)
        with f.loop("dim", 0, dim, 2) as column:
            line = column * dim_bytes
            for ahead in range(0, 2 * dim_bytes, _LINE_BYTES):
                f.prefetch(next_address.at(line + ahead))
                f.prefetch(address.at(line + (ahead + shape.layout.value_offset(0, 0))))
            for odd in (0, 1):
                k = load_elements(f, shape.layout.dtype, address.at((column + odd) * dim_bytes))
                for place, head in enumerate(heads):
                    q = f.load(F32, f["q"].at((column + (head * dim + odd)) * 4), align=4).splat(LANES)
                    sums[place][odd].set(f.fma(k, q, sums[place][odd].get()))
        live = (lanes + (page * PAGE_TOKENS).cast("trunc", I32).splat(LANES)).compare(
            "slt", keys.cast("trunc", I32).splat(LANES)
        )
        scale = f.constant(F32X16, shape.scale)
        if shape.layout.is_scaled:
            scale = load_scales(f, shape, address, "keys") * scale
        for place, head in enumerate(heads):
            even, odd = sums[place]
            score = f.select(live, (even.get() + odd.get()) * scale, minus_infinity)
            f.store(score, weights.at(page * (PAGE_TOKENS * 4) + head * PART_TOKENS * 4), align=64)
            best[place].set(maximum(f, best[place].get(), score))
    for place, head in enumerate(heads):
        _exponentials(f, shape, head, best[place], pages, weights)


def _exponentials(f: Function, shape: Attention, head: int, best: Slot, pages: Value, weights: Value) -> None:
    m = largest(f, best.get())
    total = f.slot(F32X16, 0.0)
    with f.loop("page", 0, pages) as page:
        place = weights.at(page * (PAGE_TOKENS * 4) + head * PART_TOKENS * 4)
        e = exp(f, f.load(F32X16, place, align=64) - m.splat(LANES))
        total.set(total.get() + e)
        if shape.layout.is_scaled:
            e = e * load_scales(f, shape, part_page(f, shape, page), "values")
        f.store(e, place, align=64)
    f.store(m, maximum_at(shape, f["state"], head), align=4)
    f.store(tree_sum(total.get()), total_at(shape, f["state"], head), align=4)


def _values(f: Function, shape: Attention, heads: range, keys: Value, pages: Value, weights: Value) -> None:
    """o[d] = fma(e[t], v[t][d], o[d]) for t in order, from 0, in the state."""
    dim, size = shape.layout.head_dim, shape.layout.element_bytes
    outputs = [f["state"].at(head * dim * 4) for head in heads]
    for output in outputs:
        with f.loop("dim", 0, dim, LANES) as column:
            f.store(f.constant(F32X16, 0.0), output.at(column * 4), align=4)
    with f.loop("page", 0, pages) as page:
        address = part_page(f, shape, page)
        rows = f.smaller(keys - page * PAGE_TOKENS, PAGE_TOKENS)
        with f.loop("dim", 0, dim, 2 * LANES if dim % (2 * LANES) == 0 else LANES) as column:
            values = address.at(shape.layout.value_offset(0, 0)).at(column * size)
            halves = range(2 if dim % (2 * LANES) == 0 else 1)
            places = [[output.at(column * 4).at(half * LANES * 4) for half in halves] for output in outputs]
            sums = [[f.slot(F32X16, f.load(F32X16, place, align=4)) for place in row] for row in places]
            with f.loop("row", 0, rows) as row:
                start = values.at(row * (dim * size))
                v = [load_elements(f, shape.layout.dtype, start.at(half * LANES * size)) for half in halves]
                for place, head in enumerate(heads):
                    e = f.load(F32, weights.at((page * PAGE_TOKENS + row + head * PART_TOKENS) * 4), align=4)
                    for half, total in enumerate(sums[place]):
                        total.set(f.fma(e.splat(LANES), v[half], total.get()))
            for goals, totals in zip(places, sums, strict=True):
                for goal, total in zip(goals, totals, strict=True):
                    f.store(total.get(), goal, align=4)


def merge_function(module: Module, shape: Attention) -> str:
    """void merge_states(state, next): the parts so far and the next one."""
    dim, group = shape.layout.head_dim, shape.group

    def write(f: Function) -> None:
        for head in range(group):
            where = [(maximum_at(shape, f[name], head), total_at(shape, f[name], head)) for name in ("state", "next")]
            (old_m, old_l), (new_m, new_l) = [[f.load(F32, address, align=4) for address in pair] for pair in where]
            top = maximum(f, old_m, new_m)
            a, b = exp(f, old_m - top), exp(f, new_m - top)
            f.store(f.fma(old_l, a, new_l * b), where[0][1], align=4)
            f.store(top, where[0][0], align=4)
            with f.loop("dim", 0, dim, LANES) as column:
                old, new = (f[name].at(column * 4 + head * dim * 4) for name in ("state", "next"))
                added = f.load(F32X16, new, align=4) * b.splat(LANES)
                f.store(f.fma(f.load(F32X16, old, align=4), a.splat(LANES), added), old, align=4)

    doc = f"state of {group} heads of {dim}: the parts so far and the next one"
    return module.define(f"merge_states_{group}x{dim}", [(PTR, "state"), (PTR, "next")], write, doc)


def page_address(f: Function, shape: Attention, table: Value, index: Value) -> Value:
    """Address, in this layer, of the page with this index in its sequence."""
    return f["pool"].at(index_at(f, table, index) * shape.layout.page_bytes)


def part_page(f: Function, shape: Attention, page: Value) -> Value:
    """Address, in this layer, of a page of the part."""
    return page_address(f, shape, f["table"], f["part"] * (PART_TOKENS // PAGE_TOKENS) + page)


def load_elements(f: Function, dtype: DType, address: Value) -> Value:
    """16 elements of a page as <16 x float>, exactly."""
    if dtype is not DType.I8:
        return load_floats(f, dtype, address)
    return f.load(vector(I8, LANES), address).cast("sext", I32X16).cast("sitofp", F32X16)


def load_scales(f: Function, shape: Attention, page: Value, part: Literal["keys", "values"]) -> Value:
    """The scales of a page's 16 tokens."""
    offset = shape.layout.scale_offset(0, 0) + (0 if part == "keys" else PAGE_TOKENS * 4)
    return f.load(F32X16, page.at(offset), align=4)


def maximum_at(shape: Attention, state: Value, head: int) -> Value:
    return state.at((shape.group * shape.layout.head_dim + head) * 4)


def total_at(shape: Attention, state: Value, head: int) -> Value:
    return state.at((shape.group * (shape.layout.head_dim + 1) + head) * 4)


def clean_name(name: str) -> str:
    """A name LLVM takes without quotes."""
    return name.replace("+", "").replace("-", "m")
