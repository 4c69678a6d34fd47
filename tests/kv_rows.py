"""Keys and values of a session as integers, to compare them bit by bit, whatever format they are kept in."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray

from unsay import Model, Session
from unsay.isa.kv import KvLayout
from unsay.runtime.attention import KvRows, Past


def kv_rows(model: Model, session: Session, num_tokens: int) -> NDArray[np.uint32]:
    """Of the first `num_tokens` tokens, which must be computed: [tokens, layers, kv heads, 2, D], keys and values."""
    branch = session._timeline.context.branch
    assert num_tokens <= branch.length, (num_tokens, branch.length)
    return rows_in_pages(model.tree.pool.memory, model.spec.kv_layout, branch.page_table(), num_tokens)


def rows_in_pages(memory: memoryview, layout: KvLayout, table: array[int], length: int) -> NDArray[np.uint32]:
    """The bits of every row as f32 [tokens, layers, kv heads, 2, D]; of int8 [..., D + 1], the last being the scale."""
    pages, used = np.asarray(memory), np.asarray(table)
    layers = [KvRows(pages, layout, layer).read(used, length) for layer in range(layout.num_layers)]
    return np.stack([_bits(past) for past in layers], axis=1)


def _bits(past: Past) -> NDArray[np.uint32]:
    rows = np.stack((past.k, past.v), axis=2)
    if past.scales is not None:
        rows = np.concatenate((rows, past.scales[..., None]), axis=-1)
    return rows.view(np.uint32)
