"""Attention of the reference executor (docs/numerics.md N9), and the rows of the KV pages it reads and writes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.core import PAGE_TOKENS, Float32Array
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout
from unsay.runtime.arithmetic import Float64Array, exp, f32, fma, sum16
from unsay.runtime.interpreted import ArrayBatch

PART_TOKENS = 256
"""Keys attended to at a time."""

MOST = 16256
"""The largest multiplier of int8 pages: 127 * 128."""

_ELEMENTS = {DType.F16: np.float16, DType.F32: np.float32, DType.I8: np.int8}


class KvRows:
    """Keys and values of one layer in the pool's pages (isa/kv.py), as views of them, q elements together. Per KV head:
    keys [pages, D/q, P, q], values [pages, P/q, D, q]; of int8 scales [pages, 2, P], keys then values."""

    def __init__(self, kv_memory: NDArray[np.uint8], layout: KvLayout, layer: int) -> None:
        kind = np.dtype(_ELEMENTS[layout.dtype])
        self.together = q = layout.together
        key_shape, value_shape = (layout.head_dim // q, PAGE_TOKENS, q), (PAGE_TOKENS // q, layout.head_dim, q)
        heads = range(layout.num_kv_heads)
        self.keys = [_view(kv_memory, layout.key_offset(layer, h), kind, key_shape) for h in heads]
        self.values = [_view(kv_memory, layout.value_offset(layer, h), kind, value_shape) for h in heads]
        self.scales: list[NDArray[np.float32]] = []
        if layout.is_scaled:
            offsets = [layout.scale_offset(layer, h) for h in heads]
            self.scales = [_view(kv_memory, offset, np.dtype(np.float32), (2, PAGE_TOKENS)) for offset in offsets]

    def append(self, k: Float32Array, v: Float32Array, batch: ArrayBatch) -> None:
        """Store k and v [T, K, D] in the rows of their positions, in the format of the pages."""
        pages = batch.page_tables[batch.sequence, batch.positions // PAGE_TOKENS]
        assert (pages >= 0).all(), ("a position without a page", batch.positions, batch.page_tables)
        slots = batch.positions % PAGE_TOKENS
        for head, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            rows = (k[:, head], v[:, head])
            if self.scales:
                (key_row, key_scale), (value_row, value_scale) = (quantise(row) for row in rows)
                self.scales[head][pages, 0, slots], self.scales[head][pages, 1, slots] = key_scale, value_scale
                rows = (key_row, value_row)
            key_row, value_row = (row.astype(keys.dtype) for row in rows)
            keys[pages, :, slots] = key_row.reshape(len(slots), -1, self.together)
            values[pages, slots // self.together, :, slots % self.together] = value_row

    def read(self, page_table: NDArray[np.int32], length: int) -> Past:
        """Positions 0..length-1 of one sequence."""
        pages = page_table[: -(-length // PAGE_TOKENS)]
        keys = [part[pages].swapaxes(1, 2).reshape(-1, part.shape[1] * self.together)[:length] for part in self.keys]
        values = [part[pages].swapaxes(2, 3).reshape(-1, part.shape[2])[:length] for part in self.values]
        scales = [part[pages].transpose(0, 2, 1).reshape(-1, 2)[:length] for part in self.scales]
        k, v = (np.stack(rows, axis=1).astype(np.float32) for rows in (keys, values))
        return Past(k, v, np.stack(scales, axis=1) if scales else None)


def _view(memory: NDArray[np.uint8], offset: int, kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """[pages, *shape] of this type, at an offset in every page."""
    num_bytes = math.prod(shape) * kind.itemsize
    return memory[:, offset : offset + num_bytes].view(kind).reshape(-1, *shape, copy=False)


def quantise(x: Float32Array, most: float = 127) -> tuple[Float32Array, Float32Array]:
    """N9, int8: the integers, -most..most, of rows x [..., D], as f32, and the scale [...] of each."""
    amax = np.abs(x).max(axis=-1)
    is_zero = amax < f32(2.0**-100)
    scale, inverse = (np.where(is_zero, f32(0), y) for y in (amax / f32(most), f32(most) / amax))
    return np.rint(x * inverse[..., None]), scale


@dataclass(frozen=True, slots=True)
class Past:
    """What a token attends to. k, v: [S, K, D], integers if there are scales [S, K, 2], of keys and of values."""

    k: Float32Array
    v: Float32Array
    scales: Float32Array | None = None

    def part(self, start: int) -> Past:
        """The part of PART_TOKENS keys from `start` on."""
        chosen = slice(start, start + PART_TOKENS)
        return Past(self.k[chosen], self.v[chosen], None if self.scales is None else self.scales[chosen])

    def values(self) -> Float32Array:
        """The values as numbers."""
        return self.v if self.scales is None else self.v * self.scales[:, :, 1, None]

    def of_heads(self, group: int) -> Past:
        """With a KV head for every one of its `group` query heads."""
        scales = None if self.scales is None else np.repeat(self.scales, group, axis=1)
        return Past(np.repeat(self.k, group, axis=1), np.repeat(self.v, group, axis=1), scales)


def attend(q: Float32Array, past: Past, positions: NDArray[np.int32], scale: float) -> Float32Array:
    """N9 for the tokens of one sequence. q: [T, H, D]; positions: [T], ascending; out [T, H, D]."""
    past = past.of_heads(q.shape[1] // past.k.shape[1])
    top, total, out = _attend_part(q, past.part(0), positions, scale)
    for start in range(PART_TOKENS, len(past.k), PART_TOKENS):
        reach = slice(int(np.searchsorted(positions, start)), None)
        m, weight, o = _attend_part(q[reach], past.part(start), positions[reach] - start, scale)
        new_top = np.maximum(top[reach], m)
        a, b = exp(top[reach] - new_top), exp(m - new_top)
        total[reach] = fma(total[reach], a, weight * b)
        out[reach] = fma(out[reach], a[..., None], o * b[..., None])
        top[reach] = new_top
    inverse: Float32Array = (f32(1) / total)[..., None]
    return out * inverse


def _attend_part(
    q: Float32Array, past: Past, last: NDArray[np.int32], scale: float
) -> tuple[Float32Array, Float32Array, Float32Array]:
    """One part of N9: maximum [T, H], sum [T, H] and weighted values [T, H, D]. q: [T, H, D]; past: of H heads;
    last: [T], ascending, the last key of the part each token sees (at or beyond S: all of them)."""
    products = _FloatProducts(past) if past.scales is None else _IntegerProducts(past, past.scales)
    scores = products.scores(q, f32(scale))
    scores[np.broadcast_to(np.arange(len(past.k)) > last[:, None, None], scores.shape)] = -np.inf
    m = scores.max(axis=-1)
    e = exp(scores - m[..., None])
    return m, sum16(e), products.values(e, last)


@dataclass(frozen=True, slots=True)
class _FloatProducts:
    """Of pages of numbers: in order, as f32."""

    past: Past

    def scores(self, q: Float32Array, scale: Float32Array) -> Float32Array:
        """[T, H, S] of q [T, H, D]."""
        k = self.past.k
        even = np.zeros((*q.shape[:2], len(k)), np.float32)
        odd = even
        for d in range(0, q.shape[2], 2):
            even = fma(k[:, :, d].T, q[:, :, d, None], even)
            odd = fma(k[:, :, d + 1].T, q[:, :, d + 1, None], odd)
        return (even + odd) * scale

    def values(self, e: Float32Array, last: NDArray[np.int32]) -> Float32Array:
        """[T, H, D] of e [T, H, S]."""
        v = self.past.v
        o = np.zeros((*e.shape[:2], v.shape[2]), np.float32)
        for t in range(len(v)):
            first = int(np.searchsorted(last, t))
            o[first:] = fma(e[first:, :, t, None], v[t], o[first:])
        return o


@dataclass(frozen=True, slots=True)
class _IntegerProducts:
    """Of pages of int8: exact dots with integers of 15 bits. scales: [S, H, 2]."""

    past: Past
    scales: Float32Array

    def scores(self, q: Float32Array, scale: Float32Array) -> Float32Array:
        """[T, H, S] of q [T, H, D]."""
        integers, q_scale = quantise(q, MOST)
        dots = _exact_dots("thd,shd->ths", integers, self.past.k)
        steps: Float32Array = (q_scale * scale)[..., None]
        scales: Float32Array = self.scales[:, :, 0].T * steps
        return dots * scales

    def values(self, e: Float32Array, last: NDArray[np.int32]) -> Float32Array:
        """[T, H, D] of e [T, H, S], which is 0 for keys that are not seen."""
        weights = np.where(e == 0, f32(0), e * self.scales[:, :, 1].T)
        integers, scale = quantise(weights, MOST)
        return _exact_dots("ths,shd->thd", integers, self.past.v) * scale[..., None]


def _exact_dots(subscripts: str, a: Float32Array, b: Float32Array) -> Float32Array:
    """Sums of products of integers, below 2^53 all the way, rounded once."""
    dots: Float64Array = np.einsum(subscripts, a.astype(np.float64), b.astype(np.float64), optimize=True)
    rounded: Float32Array = dots.astype(np.float32)
    return rounded
