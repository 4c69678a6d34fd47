"""Attention on a GPU: N9 of docs/numerics.md, over the pages of isa/kv.py in f16 or f32.

    page [L][K]{ keys [D][16] | values [16][D] }      in words: of f16 two tokens of a key's dim, two dims of a value

`pool` is bound from where the layer begins in the first page, so that layers share kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unsay.compiler.codegen.gpu.functions import LANES, SUM_LANES, exp, name_of, tree_sum
from unsay.compiler.codegen.gpu.lanes import (
    F32,
    I32,
    Expr,
    Kernel,
    Memory,
    Var,
    as_f32,
    as_i32,
    choose,
    constant,
    fma,
    half,
    half_bits,
)  # fmt: skip
from unsay.core import PAGE_TOKENS
from unsay.errors import UnsupportedError
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

PART_TOKENS = 256
"""Keys of a part; also the lanes of a group."""


@dataclass(frozen=True, slots=True)
class Attention:
    """H query heads over the KV heads of `layout`; q is columns of f32 rows of q_width."""

    layout: KvLayout
    num_heads: int
    scale: float
    q_width: int
    q_column: int = 0

    @property
    def name(self) -> str:
        """For the kernel."""
        shape = f"{self.num_heads}h{self.layout.num_kv_heads}x{self.layout.head_dim}of{self.layout.num_layers}"
        return f"attention_{shape}_q{self.q_column}of{self.q_width}_{name_of(self.scale)}"


def append(layout: KvLayout, part: Literal["keys", "values"], width: int, column: int) -> Kernel:
    """Put the keys or the values of each token in its page, as f16 or f32.

    A lane has two dims of a head, and all tokens in turn, as two tokens of a key in f16 share a word.

    Grid: ceil(K D / 2 / 64) x 1. Buffers: x f32 [T][width], heads from `column` on; pool, tables i32 [B][stride],
    sequence i32 [T], positions i32 [T], sizes i32 (T, stride). Raises UnsupportedError for pages of int8.
    """
    _check_format(layout)
    dim, num_pairs = layout.head_dim, layout.num_kv_heads * layout.head_dim // 2
    name = f"append_{part}_{layout.num_kv_heads}x{dim}of{layout.num_layers}_{column}of{width}"
    k = Kernel(name, LANES, f"{part} of {layout.num_kv_heads} heads of {dim} to the pages of the tokens")
    x, pool = k.buffer("x", F32), k.buffer("pool", I32, writes=True)
    tables, sequence, positions, sizes = (k.buffer(n, I32) for n in ("tables", "sequence", "positions", "sizes"))
    pair = k.let("pair", k.group * LANES + k.lane)
    with k.when(pair < num_pairs), k.loop("t", 0, sizes[0]) as t:
        position = k.let("position", positions[t])
        page = k.let("page", tables[sequence[t] * sizes[1] + position // PAGE_TOKENS])
        slot, d = k.let("slot", position % PAGE_TOKENS), k.let("d", pair * 2 % dim)
        start = k.let("start", _head_start(layout, page, pair * 2 // dim))
        at = k.let("at", t * width + pair * 2 + column)
        pair_of = [x[at + odd] for odd in (0, 1)]
        if layout.dtype is DType.F32:
            for odd, value in enumerate(pair_of):
                index = (d + odd) * PAGE_TOKENS + slot if part == "keys" else (slot + PAGE_TOKENS) * dim + d + odd
                pool[start + index] = as_i32(value)
        elif part == "values":
            first, second = (k.let("bits", half_bits(value)) for value in pair_of)
            pool[start + dim * (PAGE_TOKENS // 2) + ((slot * dim + d) >> 1)] = first | (second << 16)
        else:
            for odd, value in enumerate(pair_of):
                _store_key_half(k, pool, start + (((d + odd) * PAGE_TOKENS + slot) >> 1), slot, value)
    return k


def _check_format(layout: KvLayout) -> None:
    if layout.is_scaled:
        raise UnsupportedError("GPU kernels keep keys and values as f16 or f32: compile with --kv f16 or --kv f32")


def _store_key_half(k: Kernel, pool: Memory, index: Expr, slot: Expr, value: Expr) -> None:
    """The half of a word that the slot has; the other half is another token's."""
    bits, place = k.let("bits", half_bits(value)), k.let("place", index)
    other = k.let("other", pool[place] & choose((slot & 1).equals(0), -65536, constant(I32, 0xFFFF)))
    pool[place] = other | (bits << ((slot & 1) * 16))


def _head_start(layout: KvLayout, page: Expr, head: Expr) -> Expr:
    """The word where the keys of a head are in a page; its values follow."""
    return page * (layout.page_bytes // 4) + head * (layout.head_bytes // 4)


def attention(shape: Attention) -> Kernel:
    """A group for each head of each token, a lane for each key of a part. What it attends to has been appended.

    Grid: H x tokens. Buffers: q f32 [T][q_width], pool (pages), tables i32 [B][stride], sequence i32 [T], positions
    i32 [T], sizes i32 (T, stride), out f32 [T][H D]. Raises UnsupportedError for heads of more than 256 and int8.
    """
    _check_format(shape.layout)
    dim = shape.layout.head_dim
    if dim > PART_TOKENS:
        raise UnsupportedError(
            f"attention heads of {dim}: GPU kernels have a lane for each element, {PART_TOKENS} at most"
        )
    k = Kernel(shape.name, PART_TOKENS, f"out = softmax({shape.scale} q K) V, {shape.num_heads} heads of {dim}")
    q = k.buffer("q", F32)
    pages = _Pages(shape, k.buffer("pool", I32), k.buffer("tables", I32), k.group // _group(shape))
    sequence, positions, sizes = (k.buffer(name, I32) for name in ("sequence", "positions", "sizes"))
    out = k.buffer("out", F32, writes=True)
    score, weight = (k.shared(name, F32, PART_TOKENS) for name in ("score", "weight"))
    partial = k.shared("partial", F32, SUM_LANES)
    position = k.let("position", positions[k.row])
    table = k.let("table", sequence[k.row] * sizes[1])
    query = k.let("query", k.row * shape.q_width + k.group * dim + shape.q_column)
    top, total, o = (k.var(name, F32, 0.0) for name in ("top", "total", "o"))
    with k.loop("part", 0, (position >> 8) + 1) as part:
        first = k.let("first", table + part * (PART_TOKENS // PAGE_TOKENS))
        keys = k.let("keys", _smaller(position + 1 - part * PART_TOKENS, PART_TOKENS))
        with k.when(k.lane < keys):
            score[k.lane] = _score(k, pages, first, q, query)
        k.barrier()
        m = _largest(k, score, keys)
        weight[k.lane] = constant(F32, 0.0)
        with k.when(k.lane < keys):
            weight[k.lane] = exp(k, score[k.lane] - m)
        k.barrier()
        with k.when(k.lane < SUM_LANES):
            partial[k.lane] = _strided_sum(k, weight)
        own = k.var("own", F32, 0.0)
        with k.when(k.lane < dim), k.loop("t", 0, keys) as t:
            own.set(fma(weight[t], pages.value(k, first, t, k.lane), own.get()))
        k.barrier()
        _merge(k, part, (top, total, o), (m, tree_sum(k, [partial[lane] for lane in range(SUM_LANES)]), own.get()))
    with k.when(k.lane < dim):
        inverse = constant(F32, 1.0) / total.get()
        out[(k.row * shape.num_heads + k.group) * dim + k.lane] = o.get() * inverse
    return k


def _group(shape: Attention) -> int:
    assert shape.num_heads % shape.layout.num_kv_heads == 0, shape
    return shape.num_heads // shape.layout.num_kv_heads


@dataclass(frozen=True, slots=True)
class _Pages:
    """The keys and values of KV head `head` of the layer; `first` is where a part's pages begin in `tables`."""

    shape: Attention
    pool: Memory
    tables: Memory
    head: Expr

    def key(self, page: Expr, slot: Expr, d: Expr) -> Expr:
        """Element d of the key in this slot of a page."""
        return self._element(page, d * PAGE_TOKENS + slot)

    def value(self, k: Kernel, first: Expr, t: Expr, d: Expr) -> Expr:
        """Element d of the value of key t of the part."""
        page = k.let("page", self.tables[first + t // PAGE_TOKENS])
        dim = self.shape.layout.head_dim
        return self._element(page, t % PAGE_TOKENS * dim + d + dim * PAGE_TOKENS)

    def _element(self, page: Expr, index: Expr) -> Expr:
        start = _head_start(self.shape.layout, page, self.head)
        if self.shape.layout.dtype is DType.F32:
            return as_f32(self.pool[start + index])
        return half(self.pool[start + (index >> 1)], index & 1)


def _smaller(a: Expr, b: int) -> Expr:
    return choose(a < b, a, constant(I32, b))


def _score(k: Kernel, pages: _Pages, first: Expr, q: Memory, query: Expr) -> Expr:
    """scale * q K of the lane's key."""
    page = k.let("page", pages.tables[first + k.lane // PAGE_TOKENS])
    slot = k.let("slot", k.lane % PAGE_TOKENS)
    even, odd = k.var("even", F32, 0.0), k.var("odd", F32, 0.0)
    with k.loop("d", 0, pages.shape.layout.head_dim, 2) as d:
        even.set(fma(pages.key(page, slot, d), q[query + d], even.get()))
        odd.set(fma(pages.key(page, slot, d + 1), q[query + d + 1], odd.get()))
    return (even.get() + odd.get()) * pages.shape.scale


def _largest(k: Kernel, score: Memory, keys: Expr) -> Expr:
    """The largest of the first `keys` scores, computed by every lane."""
    m = k.var("m", F32, score[0])
    with k.loop("t", 1, keys) as t:
        m.set(choose(score[t] > m.get(), score[t], m.get()))
    return m.get()


def _strided_sum(k: Kernel, weight: Memory) -> Expr:
    """N1, the first half, for the lane; weights beyond the last key are zero."""
    total = k.var("lane_total", F32, 0.0)
    with k.loop("t", k.lane, PART_TOKENS, SUM_LANES) as t:
        total.set(total.get() + weight[t])
    return total.get()


def _merge(k: Kernel, part: Expr, state: tuple[Var, Var, Var], next_part: tuple[Expr, Expr, Expr]) -> None:
    """The parts so far (top, total, o) and the next one's (m, l, own). One of the two weights is exp(0), which is 1."""
    (top, total, o), (m, weight, own) = state, next_part
    with k.when(part.equals(0)):
        top.set(m)
        total.set(weight)
        o.set(own)
    with k.when(part > 0):
        rises = k.let("rises", m > top.get())
        n = k.let("n", choose(rises, m, top.get()))
        smaller = exp(k, choose(rises, top.get(), m) - n)
        a = k.let("a", choose(rises, smaller, constant(F32, 1.0)))
        b = k.let("b", choose(rises, constant(F32, 1.0), smaller))
        total.set(fma(total.get(), a, weight * b))
        o.set(fma(o.get(), a, own * b))
        top.set(n)
