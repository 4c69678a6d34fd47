"""The inside of attention (N9): what one part of 256 keys gives the G query heads of a KV head, and how parts merge.

A state is what a part leaves for G heads: o f32 [G][D] | m f32 [G] | l f32 [G].
Keys of a page are [D][16], so a vector is one dim of 16 tokens; values are [16][D] (isa/kv.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from unsay.compiler.codegen.builder import F16, F32, F32X16, I8, I32, I64, PTR, Function, Module, Slot, Value, vector
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import LANES, exp, index_at, largest, maximum, tree_sum
from unsay.core import PAGE_TOKENS
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

PART_TOKENS = 256
_PART_PAGES = PART_TOKENS // PAGE_TOKENS
_LINE_BYTES = 64

_NUM_SUMS = {64: 24, 32: 12, 16: 24}
"""Registers for sums, by bytes of a register: of 32, 16 and 32; the rest hold what is multiplied."""

_STORED = {DType.F16: F16, DType.F32: F32, DType.I8: I8}


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
    dim, at_once = shape.layout.head_dim, _heads_at_once(unit, shape.group)

    def write(f: Function) -> None:
        weights = f.buffer(shape.group * PART_TOKENS * 4)
        keys = f.smaller(f["position"] + 1 - f["part"] * PART_TOKENS, PART_TOKENS)
        pages = (keys + (PAGE_TOKENS - 1)) // PAGE_TOKENS
        for first in range(0, shape.group, at_once):
            heads = range(first, min(first + at_once, shape.group))
            part = _Part(f, unit, shape, heads, keys, pages, weights)
            _scores(part)
            _values(part)

    name = f"attend_part_{shape.group}x{dim}_p{shape.layout.page_bytes}_{shape.scale.hex()[4:]}"
    parameters = [(PTR, "pool"), (PTR, "table"), (PTR, "q"), (I64, "part"), (I64, "position"), (PTR, "state")]
    doc = f"state of {shape.group} heads of {dim} over the keys of one part, up to `position`"
    return module.define(clean_name(name), parameters, write, doc)


def _heads_at_once(unit: DotUnit, group: int) -> int:
    """Query heads that go through a page together, about the same number each time."""
    most = _NUM_SUMS[unit.vector_bytes] // (PAGE_TOKENS // unit.lanes)
    return -(-group // -(-group // most))


@dataclass(frozen=True, slots=True)
class _Part:
    """`keys` keys of a part, in `pages` pages, for some of the G query heads. weights: scratch f32 [G][256]."""

    f: Function
    unit: DotUnit
    shape: Attention
    heads: range
    keys: Value
    pages: Value
    weights: Value

    @property
    def num_sums(self) -> int:
        """Registers for the sums of a head."""
        return _NUM_SUMS[self.unit.vector_bytes] // len(self.heads)

    @property
    def pages_at_once(self) -> int:
        """Pages whose sums fit; a power of two, so that the last of them is still in the part."""
        return max(
            count for count in (1, 2, 4) if count == 1 or count * PAGE_TOKENS // self.unit.lanes <= self.num_sums
        )

    @property
    def columns_at_once(self) -> int:
        """Registers of a row of values whose sums fit; they divide the row."""
        row = self.shape.layout.head_dim // self.unit.lanes
        return max(count for count in range(1, row + 1) if row % count == 0 and count <= self.num_sums)

    def page(self, index: Value) -> Value:
        """Address, in this layer, of a page of the part, or of the last one if there are fewer."""
        index = self.f.smaller(index, self.pages - 1)
        return page_address(self.f, self.shape, self.f["table"], self.f["part"] * _PART_PAGES + index)

    def weight(self, head: int, key: Value) -> Value:
        """Address of a key's score or weight."""
        return self.weights.at((key + head * PART_TOKENS) * 4)

    def elements(self, address: Value) -> Value:
        """A register of elements of a page, exactly."""
        f, dtype, lanes = self.f, self.shape.layout.dtype, self.unit.lanes
        stored = f.load(vector(_STORED[dtype], lanes), address, align=self.shape.layout.element_bytes)
        if dtype is DType.I8:
            return stored.cast("sext", vector(I32, lanes)).cast("sitofp", vector(F32, lanes))
        return stored if dtype is DType.F32 else stored.cast("fpext", vector(F32, lanes))

    def scales(self, page: Value, of: Literal["keys", "values"], first: int, lanes: int) -> Value:
        """The scales of the keys or values of tokens of a page, from the `first` on."""
        offset = self.shape.layout.scale_offset(0, 0) + (first + (0 if of == "keys" else PAGE_TOKENS)) * 4
        return self.f.load(vector(F32, lanes), page.at(offset), align=4)

    def prefetch_scales(self, pages: Sequence[Value]) -> None:
        """Bring the scales of these pages near, if they have any."""
        if self.shape.layout.is_scaled:
            for page in pages:
                for line in range(0, 2 * PAGE_TOKENS * 4, _LINE_BYTES):
                    self.f.prefetch(page.at(self.shape.layout.scale_offset(0, 0) + line))


def _scores(part: _Part) -> None:
    """e[t] = exp(s[t] - m), times the value's scale if it has one, to the weights; m and l to the state.

    Sums over even dims are made and put aside, then those over odd ones: there are registers for one of the two.
    """
    f, count = part.f, part.pages_at_once
    with f.loop("block", 0, (part.pages + (count - 1)) // count) as block:
        numbers = [block * count + place for place in range(count)]
        pages = [part.page(number) for number in numbers]
        following = [part.page(number + count) for number in numbers]
        values = [page.at(part.shape.layout.value_offset(0, 0)) for page in pages]
        part.prefetch_scales(following)
        for (place, first, head), total in _sums(part, pages, 0, following).items():
            f.store(total.get(), part.weight(head, numbers[place] * PAGE_TOKENS + first), align=4)
        for (place, first, head), total in _sums(part, pages, 1, values).items():
            address = part.weight(head, numbers[place] * PAGE_TOKENS + first)
            score = _score(
                part, f.load(total.type, address, align=4) + total.get(), pages[place], numbers[place], first
            )
            f.store(score, address, align=4)
    for head in part.heads:
        _exponentials(part, head)


def _sums(
    part: _Part, pages: Sequence[Value], odd: Literal[0, 1], needed: Sequence[Value]
) -> dict[tuple[int, int, int], Slot]:
    """Over d = odd, odd + 2 ...: fma(k[t][d], q[d], sum), by (place in pages, first token of a register, head).

    needed: keys or values of pages to bring near meanwhile.
    """
    f, lanes, layout = part.f, part.unit.lanes, part.shape.layout
    places = [(place, first) for place in range(len(pages)) for first in range(0, PAGE_TOKENS, lanes)]
    sums = {(*at, head): f.slot(vector(F32, lanes), 0.0) for at in places for head in part.heads}
    pair_bytes = 2 * PAGE_TOKENS * layout.element_bytes
    with f.loop("dim", odd, layout.head_dim, 2) as dim:
        for address in needed:
            for line in range(0, pair_bytes, _LINE_BYTES):
                f.prefetch(address.at(dim * (pair_bytes // 2) + line))
        q = {
            head: f.load(F32, f["q"].at((dim + head * layout.head_dim) * 4), align=4).splat(lanes)
            for head in part.heads
        }
        for place, first in places:
            k = part.elements(pages[place].at((dim * PAGE_TOKENS + first) * layout.element_bytes))
            for head in part.heads:
                total = sums[place, first, head]
                total.set(f.fma(k, q[head], total.get()))
    return sums


def _score(part: _Part, total: Value, page: Value, number: Value, first: int) -> Value:
    """s[t], or -inf beyond the last key."""
    f, lanes = part.f, part.unit.lanes
    scale = f.constant(total.type, part.shape.scale)
    if part.shape.layout.is_scaled:
        scale = part.scales(page, "keys", first, lanes) * scale
    tokens = Value(f, vector(I32, lanes), f"<{', '.join(f'i32 {first + lane}' for lane in range(lanes))}>")
    left = (part.keys - number * PAGE_TOKENS).cast("trunc", I32).splat(lanes)
    return f.select(tokens.compare("slt", left), total * scale, -math.inf)


def _exponentials(part: _Part, head: int) -> None:
    f, shape = part.f, part.shape
    best, total = f.slot(F32X16, -math.inf), f.slot(F32X16, 0.0)
    with f.loop("page", 0, part.pages) as page:
        best.set(maximum(f, best.get(), f.load(F32X16, part.weight(head, page * PAGE_TOKENS), align=64)))
    m = largest(f, best.get())
    with f.loop("page", 0, part.pages) as page:
        address = part.weight(head, page * PAGE_TOKENS)
        e = exp(f, f.load(F32X16, address, align=64) - m.splat(LANES))
        total.set(total.get() + e)
        if shape.layout.is_scaled:
            e = e * part.scales(part.page(page), "values", 0, LANES)
        f.store(e, address, align=64)
    f.store(m, maximum_at(shape, f["state"], head), align=4)
    f.store(tree_sum(total.get()), total_at(shape, f["state"], head), align=4)


def _values(part: _Part) -> None:
    """o[d] = fma(w[t], v[t][d], o[d]) for t in order, from 0, in the state."""
    f, lanes, layout = part.f, part.unit.lanes, part.shape.layout
    columns = range(0, part.columns_at_once * lanes, lanes)
    with f.loop("dim", 0, layout.head_dim, len(columns) * lanes) as dim:
        sums = {(column, head): f.slot(vector(F32, lanes), 0.0) for column in columns for head in part.heads}
        with f.loop("page", 0, part.pages) as page:
            values = part.page(page).at(layout.value_offset(0, 0)).at(dim * layout.element_bytes)
            with f.loop("row", 0, f.smaller(part.keys - page * PAGE_TOKENS, PAGE_TOKENS)) as row:
                weights = {
                    head: f.load(F32, part.weight(head, page * PAGE_TOKENS + row), align=4).splat(lanes)
                    for head in part.heads
                }
                for column in columns:
                    v = part.elements(values.at((row * layout.head_dim + column) * layout.element_bytes))
                    for head in part.heads:
                        total = sums[column, head]
                        total.set(f.fma(weights[head], v, total.get()))
        for (column, head), total in sums.items():
            f.store(total.get(), f["state"].at((dim + (head * layout.head_dim + column)) * 4), align=4)


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


def maximum_at(shape: Attention, state: Value, head: int) -> Value:
    return state.at((shape.group * shape.layout.head_dim + head) * 4)


def total_at(shape: Attention, state: Value, head: int) -> Value:
    return state.at((shape.group * (shape.layout.head_dim + 1) + head) * 4)


def clean_name(name: str) -> str:
    """A name LLVM takes without quotes."""
    return name.replace("+", "").replace("-", "m")
