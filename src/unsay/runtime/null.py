"""The null executor: no arithmetic, only bookkeeping, so that tests of everything above it take microseconds.

Logits are pseudo-random, but they are a function of the token ids before them and of nothing else, as the contract
asks. The state of a prefix is kept where keys and values would be: slot p % 16 of the page holds, as u64, a hash of the
tokens 0..p, made from the slot before it. So a wrong page, a missed copy or a stale row changes the logits here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unsay.core import PAGE_TOKENS, Batch, Float32View
from unsay.image import ModelSpec
from unsay.runtime.interpreted import InterpretedRuns, in_arrays, in_rows

if TYPE_CHECKING:
    from unsay.runtime.image import Image

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def _mix(state: int) -> int:
    """One step of splitmix64 (Steele, Lea, Flood, 2014): a bijection of 0..2^64-1 that scatters its input."""
    state = (state + _GOLDEN) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


class NullExecutor(InterpretedRuns):
    """An Executor (see runtime.executor) that computes nothing."""

    def __init__(self, image: Image, kv_memory: memoryview, num_threads: int = 1) -> None:
        super().__init__()
        manifest = image.manifest
        self._spec = manifest.spec
        self._max_tokens = manifest.max_tokens
        self._slots = np.asarray(kv_memory)[:, : PAGE_TOKENS * 8].view(np.uint64)
        self._salt = np.array([_mix(token_id) | 1 for token_id in range(self._spec.vocab_size)], np.uint64)

    @property
    def spec(self) -> ModelSpec:
        """Shape of the model this stands in for."""
        return self._spec

    @property
    def max_tokens(self) -> int:
        """Most tokens (T) one batch may hold."""
        return self._max_tokens

    @property
    def max_rows(self) -> int:
        """Most logit rows (R) one batch may ask for."""
        return 64

    def run(self, batch: Batch) -> list[Float32View] | None:
        """R rows of logits [V] in [-8, 8); None if interrupted."""
        if self.interrupt_word[0]:
            return None
        tables = in_arrays(batch).page_tables
        for row, position, token_id in zip(batch.sequence, batch.positions, batch.token_ids, strict=True):
            self._advance(tables[row], int(position), int(token_id))
        states = [self._state(tables[batch.sequence[t]], int(batch.positions[t])) for t in batch.logit_rows]
        bits = np.array(states, np.uint64)[:, None] * self._salt
        return in_rows((bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-20) - np.float32(8))

    def _state(self, pages: NDArray[np.int32], position: int) -> int:
        """Hash of the tokens 0..position; position -1 is the empty prefix."""
        if position < 0:
            return 0
        return int(self._slots[self._page(pages, position), position % PAGE_TOKENS])

    def _advance(self, pages: NDArray[np.int32], position: int, token_id: int) -> None:
        state = _mix(self._state(pages, position - 1) ^ _mix(token_id))
        self._slots[self._page(pages, position), position % PAGE_TOKENS] = state

    def _page(self, pages: NDArray[np.int32], position: int) -> int:
        page = int(pages[position // PAGE_TOKENS])
        assert 0 <= page < len(self._slots), ("no page for position", position, page)
        return page
