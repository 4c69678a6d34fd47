"""How well a model predicts a text: windows over its tokens, teacher forcing, log-likelihood in float64.

|<------- context ------->|
[ scored (all but first)  ]
          [ seen   |scored]      stride < context: a window's first context - stride tokens are only context
                   [ seen   |scored]
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array, Progress
from unsay.errors import RequestError
from unsay.image import ModelSpec

_ROWS_AT_ONCE = 64


class Predictor(Protocol):
    """What can be evaluated: a `Model`, or anything that gives logits."""

    @property
    def spec(self) -> ModelSpec:
        """Shape of the model."""
        ...

    def logits(self, token_ids: Sequence[int]) -> Float32Array:
        """Next-token logits [T, V] at each of T tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens [start, end) of a text, of which those from `first_scored` on are predicted."""

    start: int
    end: int
    first_scored: int


@dataclass(frozen=True, slots=True)
class PerplexityResult:
    """num_scored tokens were predicted with a mean negative log-likelihood of `mean_nll` nats."""

    num_tokens: int
    num_scored: int
    mean_nll: float
    perplexity: float
    context: int
    stride: int
    seconds: float


def perplexity(
    model: Predictor,
    token_ids: Sequence[int],
    *,
    context: int = 512,
    stride: int | None = None,
    progress: Progress | None = None,
) -> PerplexityResult:
    """exp of the mean negative log-likelihood of the tokens, each seen with up to `context` - 1 tokens before it.

    stride (default `context`) is how far a window moves. Raises RequestError if the sizes or the text do not allow it.
    """
    stride = context if stride is None else stride
    _check(len(token_ids), context, stride, model.spec)
    started = time.perf_counter()
    total, num_scored = 0.0, 0
    for window in windows(len(token_ids), context, stride):
        log_probs = _score(model, token_ids, window)
        total -= math.fsum(log_probs)
        num_scored += len(log_probs)
        if progress:
            progress("evaluate", window.end, len(token_ids))
    mean = total / num_scored
    seconds = time.perf_counter() - started
    return PerplexityResult(len(token_ids), num_scored, mean, _exp(mean), context, stride, seconds)


def windows(num_tokens: int, context: int, stride: int) -> Iterator[Window]:
    """The windows over a text: every token but the very first of a non-overlapping window is scored exactly once."""
    scored_to = 0
    for start in range(0, num_tokens, stride):
        end = min(start + context, num_tokens)
        first = max(scored_to, start + 1)
        if first < end:
            yield Window(start, end, first)
            scored_to = end
        if end == num_tokens:
            return


def token_log_probs(logits: Float32Array, targets: Sequence[int]) -> NDArray[np.float64]:
    """Natural log of the probability that row t of `logits` [T, V] gives to targets[t]; float64 [T]."""
    assert len(logits) == len(targets), (len(logits), len(targets))
    chosen = np.asarray(targets, np.intp)
    parts = [
        _log_softmax_at(logits[row : row + _ROWS_AT_ONCE], chosen[row : row + _ROWS_AT_ONCE])
        for row in range(0, len(chosen), _ROWS_AT_ONCE)
    ]
    return np.concatenate(parts)


def _score(model: Predictor, token_ids: Sequence[int], window: Window) -> NDArray[np.float64]:
    logits = model.logits(token_ids[window.start : window.end - 1])
    return token_log_probs(
        logits[window.first_scored - 1 - window.start :], token_ids[window.first_scored : window.end]
    )


def _log_softmax_at(logits: Float32Array, chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    wide = logits.astype(np.float64)
    peak = wide.max(axis=-1)
    log_total = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=-1))
    return wide[np.arange(len(chosen)), chosen] - log_total


def _exp(mean: float) -> float:
    try:
        return math.exp(mean)
    except OverflowError:
        return math.inf


def _check(num_tokens: int, context: int, stride: int, spec: ModelSpec) -> None:
    if not 2 <= context <= spec.context_length:
        raise RequestError(f"a context of {context} tokens: it must be in 2..{spec.context_length} for {spec.name}")
    if not 1 <= stride <= context:
        raise RequestError(f"a stride of {stride} tokens: it must be in 1..{context}, the context")
    if num_tokens < 2:
        raise RequestError(f"the text has {num_tokens} tokens; at least 2 are needed to predict one from the other")
