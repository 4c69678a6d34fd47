"""How closely a model's next-token distributions follow the oracle's on a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.oracle import Oracle, log_softmax
from unsay.evaluation import Predictor

TEXT = Path(__file__).parents[1] / "data" / "northanger_abbey.txt"


@dataclass(slots=True)
class Agreement:
    """Sums over the scored tokens: log-likelihoods, KL(oracle || model) in nats, and equal first choices."""

    num_tokens: int = 0
    oracle_nll: float = 0.0
    model_nll: float = 0.0
    kl: float = 0.0
    num_same_top: int = 0

    @property
    def oracle_perplexity(self) -> float:
        """Of the float64 forward pass."""
        return math.exp(self.oracle_nll / self.num_tokens)

    @property
    def perplexity_ratio(self) -> float:
        """The model's perplexity over the oracle's, minus one."""
        return math.expm1((self.model_nll - self.oracle_nll) / self.num_tokens)

    @property
    def mean_kl(self) -> float:
        """Nats a token."""
        return self.kl / self.num_tokens

    @property
    def top1(self) -> float:
        """Share of tokens where both would choose the same."""
        return self.num_same_top / self.num_tokens

    def add(self, oracle_logits: np.ndarray, model_logits: np.ndarray, targets: Sequence[int]) -> None:
        """Count logits [T, V] of both against the T tokens that really follow."""
        expected, found = log_softmax(oracle_logits), log_softmax(model_logits)
        rows = np.arange(len(targets))
        self.num_tokens += len(targets)
        self.oracle_nll -= float(expected[rows, targets].sum())
        self.model_nll -= float(found[rows, targets].sum())
        self.kl += float((np.exp(expected) * (expected - found)).sum())
        self.num_same_top += int((expected.argmax(axis=1) == found.argmax(axis=1)).sum())

    def __str__(self) -> str:
        return (
            f"{self.num_tokens} tokens: oracle perplexity {self.oracle_perplexity:.4f}, "
            f"ours {self.perplexity_ratio:+.3%}, mean KL {self.mean_kl:.6f} nats, top-1 agreement {self.top1:.3%}"
        )


def chunks(token_ids: Sequence[int], context: int) -> list[list[int]]:
    """Whole stretches of `context` tokens."""
    return [list(token_ids[start : start + context]) for start in range(0, len(token_ids) - context + 1, context)]


def measure(model: Predictor, oracle: Oracle, documents: Iterable[list[int]]) -> Iterator[Agreement]:
    """The agreement so far, after each document."""
    total = Agreement()
    for ids in documents:
        total.add(oracle.logits(ids[:-1]), model.logits(ids[:-1]), ids[1:])
        yield total
