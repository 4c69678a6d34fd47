"""Perplexity over windows, checked against a model whose predictions are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unsay.core import Float32Array
from unsay.errors import RequestError
from unsay.evaluation import perplexity, token_log_probs, windows
from unsay.image import ModelSpec

_SPEC = ModelSpec("fake", "llama", 1, 32, 1, 1, 32, 32, 8, 64, 1e-5, 1e4)


class _Bigrams:
    """Logits depend on the last token only, so that every window gives the same score."""

    spec = _SPEC
    table = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)

    def logits(self, token_ids: Sequence[int]) -> Float32Array:
        return self.table[list(token_ids)]


def _exact(ids: Sequence[int], scored: Sequence[int]) -> float:
    table = _Bigrams.table.astype(np.float64)
    log_probs = table - np.log(np.exp(table).sum(axis=1, keepdims=True))
    return math.exp(-np.mean([log_probs[ids[t - 1], ids[t]] for t in scored]))


def test_overlapping_windows_score_every_token_but_the_first() -> None:
    ids = [int(token) for token in np.random.default_rng(1).integers(0, 8, 50)]
    result = perplexity(_Bigrams(), ids, context=16, stride=5)
    assert result.num_scored == 49
    assert result.perplexity == pytest.approx(_exact(ids, range(1, 50)), rel=1e-12)


def test_separate_windows_leave_out_the_first_token_of_each() -> None:
    ids = [int(token) for token in np.random.default_rng(2).integers(0, 8, 50)]
    result = perplexity(_Bigrams(), ids, context=16)
    assert result.perplexity == pytest.approx(_exact(ids, [t for t in range(50) if t % 16]), rel=1e-12)


@given(st.integers(2, 300), st.integers(2, 40), st.integers(1, 40))
def test_windows_never_score_twice_and_never_exceed_the_context(total: int, context: int, stride: int) -> None:
    stride = min(stride, context)
    seen: list[int] = []
    for window in windows(total, context, stride):
        assert 0 <= window.start < window.first_scored < window.end <= total
        assert window.end - window.start <= context
        seen += range(window.first_scored, window.end)
    assert seen == sorted(set(seen))
    assert len(seen) == total - 1 if stride < context else len(seen) >= total - -(-total // context)


def test_log_probs_survive_extreme_logits() -> None:
    logits = np.array([[1e4, -1e4, 0.0], [-3e38, 0.0, 0.0]], np.float32)
    np.testing.assert_allclose(token_log_probs(logits, [0, 1]), [0.0, -math.log(2)], atol=1e-12)


@pytest.mark.parametrize(
    ("context", "stride", "length", "said"),
    [(1, None, 9, "2..64"), (65, None, 9, "2..64"), (8, 0, 9, "1..8"), (8, 9, 9, "1..8"), (8, None, 1, "at least 2")],
)
def test_wrong_sizes_are_refused_with_what_is_allowed(context: int, stride: int | None, length: int, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        perplexity(_Bigrams(), [1] * length, context=context, stride=stride)
