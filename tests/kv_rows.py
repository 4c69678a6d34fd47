"""Keys and values of a session as integers, to compare them bit by bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsay import Model, Session
from unsay.core import PAGE_TOKENS


def kv_rows(model: Model, session: Session, num_tokens: int) -> NDArray[np.uint16]:
    """The f16 bits of the first `num_tokens` tokens, which must be computed: [tokens, layers, kv heads, 2, D]."""
    layout = model.spec.kv_layout
    branch = session._timeline.context.branch
    assert num_tokens <= branch.length, (num_tokens, branch.length)
    pages = model.tree.pool.memory[branch.page_table(), : layout.used_bytes].copy().view(np.uint16)
    heads = pages.reshape(len(pages), layout.num_layers, layout.num_kv_heads, 2, -1)
    keys = heads[:, :, :, 0].reshape(*heads.shape[:3], layout.head_dim, PAGE_TOKENS).swapaxes(-1, -2)
    values = heads[:, :, :, 1].reshape(*heads.shape[:3], PAGE_TOKENS, layout.head_dim)
    rows = np.stack((keys, values), axis=-2)
    return np.moveaxis(rows, 3, 1).reshape(-1, *rows.shape[1:3], 2, layout.head_dim)[:num_tokens]
