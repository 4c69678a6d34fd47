"""The oracle against itself: what must hold of any causal model with a cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.oracle import Oracle, OracleCache, log_softmax

_IDS = [int(token) for token in np.random.default_rng(3).integers(0, 290, 40)]


def test_cache_in_any_chunks_equals_one_pass(tiny_variant_path: Path) -> None:
    oracle, cache = Oracle(tiny_variant_path), OracleCache()
    chunks = [oracle.forward(_IDS[start:end], cache) for start, end in ((0, 1), (1, 8), (8, 40))]
    assert cache.length == 40
    np.testing.assert_allclose(np.concatenate(chunks), oracle.logits(_IDS), rtol=0, atol=1e-11)


def test_position_and_history_matter(tiny_path: Path) -> None:
    oracle = Oracle(tiny_path)
    logits, shifted = oracle.logits(_IDS), oracle.logits(_IDS[1:])
    assert np.abs(logits[-1] - shifted[-1]).max() > 0.1
    assert 1.0 < logits.std() < 10.0


def test_log_softmax_sums_to_one() -> None:
    logits = np.array([[1000.0, 1001.0, -1000.0]], np.float32)
    np.testing.assert_allclose(np.exp(log_softmax(logits)).sum(axis=-1), 1.0, atol=1e-15)
