"""Tokens a second: decoding for one and for several sessions, and reading a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import perf_counter

from unsay.benchmark.contexts import computed, token_ids
from unsay.core import SamplingParams
from unsay.model import Model

_WARM_UP_TOKENS = 4


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """Decoding of `sessions` answers side by side. limit: tokens a second if only reading the weights took time."""

    context: int
    sessions: int
    tokens: int
    tokens_per_s: float
    median_ms: float
    limit_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class PrefillResult:
    """A prompt of `tokens` tokens, from the call to its first answer token; the median of `count`.

    times_exact: the median of how many times as long a model of exact prompts took, in turn with this one; 1 of itself.
    """

    tokens: int
    seconds: float
    tokens_per_s: float
    count: int
    times_exact: float


def decode(
    model: Model, *, context: int, num_sessions: int, num_tokens: int, weights_bytes: int, read_bandwidth: float
) -> DecodeResult:
    """Answers of `num_tokens` tokens, one token of each session in turn."""
    sessions = [computed(model, context, _WARM_UP_TOKENS, seed=seed) for seed in range(num_sessions)]
    streams = [session.stream(max_tokens=num_tokens) for session in sessions]
    rounds: list[float] = []
    for _ in range(num_tokens):
        started = perf_counter()
        for stream in streams:
            next(stream)
        rounds.append(perf_counter() - started)
    for session in sessions:
        session.close()
    return DecodeResult(
        context=context,
        sessions=num_sessions,
        tokens=num_tokens * num_sessions,
        tokens_per_s=num_tokens * num_sessions / sum(rounds),
        median_ms=1e3 * sorted(rounds)[num_tokens // 2],
        limit_tokens_per_s=num_sessions * read_bandwidth / weights_bytes,
    )


def prefill(model: Model, exact: Model | None = None, *, num_tokens: int, repeats: int) -> PrefillResult:
    """A prompt no page of which is there yet. exact: a model to compare with."""
    ids = token_ids(model, num_tokens)
    samples: list[float] = []
    ratios: list[float] = []
    for _ in range(repeats):
        samples.append(_seconds_to_first_token(model, ids))
        ratios.append((_seconds_to_first_token(exact, ids) if exact else samples[-1]) / samples[-1])
    seconds = median(samples)
    return PrefillResult(num_tokens, seconds, num_tokens / seconds, repeats, median(ratios))


def _seconds_to_first_token(model: Model, ids: list[int]) -> float:
    params = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True)
    started = perf_counter()
    events = list(model.generate(ids, params))
    assert len(events) == 1, events
    return perf_counter() - started
