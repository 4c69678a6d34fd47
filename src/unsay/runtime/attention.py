"""Attention of the reference executor (docs/numerics.md N9), and the rows of the KV pages it reads and writes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsay.core import PAGE_TOKENS, Batch, Float32Array
from unsay.isa.abi import KvLayout
from unsay.runtime.arithmetic import exp, f32, fma, sum16

PART_TOKENS = 256
"""Keys attended to at a time."""


class KvRows:
    """Keys and values of one layer in the pool's pages (isa/abi.py), as f16 views. keys: [pages, K, D, P];
    values: [pages, K, P, D]."""

    def __init__(self, kv_memory: NDArray[np.uint8], layout: KvLayout, layer: int) -> None:
        halves = kv_memory.view(np.float16)
        heads = range(layout.num_kv_heads)
        size = layout.head_dim * PAGE_TOKENS
        self.keys = [
            self._part(halves, layout.key_offset(layer, h), size, (layout.head_dim, PAGE_TOKENS)) for h in heads
        ]
        self.values = [
            self._part(halves, layout.value_offset(layer, h), size, (PAGE_TOKENS, layout.head_dim)) for h in heads
        ]

    @staticmethod
    def _part(halves: NDArray[np.float16], offset: int, size: int, shape: tuple[int, int]) -> NDArray[np.float16]:
        return halves[:, offset // 2 : offset // 2 + size].reshape(-1, *shape, copy=False)

    def append(self, k: Float32Array, v: Float32Array, batch: Batch) -> None:
        """Round k and v [T, K, D] to f16 and store them in the rows of their positions."""
        pages = batch.page_tables[batch.sequence, batch.positions // PAGE_TOKENS]
        assert (pages >= 0).all(), ("a position without a page", batch.positions, batch.page_tables)
        slots = batch.positions % PAGE_TOKENS
        for head, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            keys[pages, :, slots] = k[:, head].astype(np.float16)
            values[pages, slots] = v[:, head].astype(np.float16)

    def read(self, page_table: NDArray[np.int32], length: int) -> tuple[Float32Array, Float32Array]:
        """Keys and values of positions 0..length-1 of one sequence, f32 [S, K, D]."""
        pages = page_table[: -(-length // PAGE_TOKENS)]
        keys = [part[pages].transpose(0, 2, 1).reshape(-1, part.shape[1])[:length] for part in self.keys]
        values = [part[pages].reshape(-1, part.shape[2])[:length] for part in self.values]
        return np.stack(keys, axis=1).astype(np.float32), np.stack(values, axis=1).astype(np.float32)


def attend(
    q: Float32Array, k: Float32Array, v: Float32Array, positions: NDArray[np.int32], scale: float
) -> Float32Array:
    """N9 for the tokens of one sequence. q: [T, H, D]; k, v: [S, K, D]; positions: [T], ascending; out [T, H, D]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    top, total, out = _attend_part(q, k[:PART_TOKENS], v[:PART_TOKENS], positions, scale)
    for start in range(PART_TOKENS, len(k), PART_TOKENS):
        part = slice(start, start + PART_TOKENS)
        reach = slice(int(np.searchsorted(positions, start)), None)
        m, weight, o = _attend_part(q[reach], k[part], v[part], positions[reach] - start, scale)
        new_top = np.maximum(top[reach], m)
        a, b = exp(top[reach] - new_top), exp(m - new_top)
        total[reach] = fma(total[reach], a, weight * b)
        out[reach] = fma(out[reach], a[..., None], o * b[..., None])
        top[reach] = new_top
    inverse: Float32Array = (f32(1) / total)[..., None]
    return out * inverse


def _attend_part(
    q: Float32Array, k: Float32Array, v: Float32Array, last: NDArray[np.int32], scale: float
) -> tuple[Float32Array, Float32Array, Float32Array]:
    """One part of N9: maximum [T, H], sum [T, H] and weighted values [T, H, D]. q: [T, H, D]; k, v: [S, H, D];
    last: [T], ascending, the last key of the part each token sees (at or beyond S: all of them)."""
    even = np.zeros((*q.shape[:2], len(k)), np.float32)
    odd = even
    for d in range(0, q.shape[2], 2):
        even = fma(k[:, :, d].T, q[:, :, d, None], even)
        odd = fma(k[:, :, d + 1].T, q[:, :, d + 1, None], odd)
    scores = (even + odd) * f32(scale)
    scores[np.broadcast_to(np.arange(len(k)) > last[:, None, None], scores.shape)] = -np.inf
    m = scores.max(axis=-1)
    e = exp(scores - m[..., None])
    o = np.zeros(q.shape, np.float32)
    for t in range(len(k)):
        first = int(np.searchsorted(last, t))
        o[first:] = fma(e[first:, :, t, None], v[t], o[first:])
    return m, sum16(e), o
