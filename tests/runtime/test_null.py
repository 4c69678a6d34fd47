"""The null executor keeps the contract: logits are a function of the ids before them, through the pages."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.images import run
from unsay.core import Batch
from unsay.image import Manifest, ModelSpec
from unsay.runtime.null import NullExecutor

SPEC = ModelSpec("tiny", "llama", 1, 32, 2, 1, 16, 64, 100, 256, 1e-5, 1e4)
MANIFEST = Manifest(1, SPEC, "null", "", "", 0, 0, 32, 1, {})
IMAGE = SimpleNamespace(manifest=MANIFEST)


def batch(sequences, pages, rows):
    """`sequences`: (start, ids) each."""
    ids = [token for _, tokens in sequences for token in tokens]
    positions = [start + i for start, tokens in sequences for i in range(len(tokens))]
    sequence = [row for row, (_, tokens) in enumerate(sequences) for _ in tokens]
    arrays = (np.array(values, np.int32) for values in (ids, positions, sequence, pages, rows))
    return Batch(*arrays)


@pytest.fixture
def executor():
    return NullExecutor(IMAGE, np.zeros((8, SPEC.kv_layout.page_bytes), np.uint8))


def test_logits_do_not_depend_on_chunks_pages_or_company(executor):
    ids = list(range(3, 23))
    whole = run(executor, batch([(0, ids)], [[0, 1]], [19]))
    executor.run(batch([(0, ids[:17])], [[4, 2]], []))
    chunked = run(executor, batch([(0, [9, 9]), (17, ids[17:])], [[7, -1], [4, 2]], [4]))
    assert np.array_equal(whole, chunked)
    assert whole.shape == (1, 100) and whole.dtype == np.float32
    assert -8 <= whole.min() < -7 and 7 < whole.max() < 8


def test_a_stale_or_wrong_page_changes_the_logits(executor):
    executor.run(batch([(0, [1, 2, 3])], [[0]], []))
    executor.run(batch([(0, [1, 7, 3])], [[1]], []))
    right, wrong = (run(executor, batch([(3, [4])], [[page]], [0])) for page in (0, 1))
    assert not np.array_equal(right, wrong)


def test_every_order_of_ids_gives_other_logits(executor):
    def greedy(*ids):
        return tuple(executor.run(batch([(0, list(ids))], [[0]], [len(ids) - 1]))[0][:4].tolist())

    assert len({greedy(1, 2, 3), greedy(3, 2, 1), greedy(1, 3), greedy(3), greedy(0, 3), greedy(1, 2, 3, 0)}) == 6


def test_interrupt_holds_until_it_is_cleared(executor):
    work = batch([(0, [1])], [[0]], [0])
    executor.interrupt_word[0] = 1
    assert executor.run(work) is None and executor.run(work) is None
    executor.interrupt_word[0] = 0
    assert executor.run(work) is not None
