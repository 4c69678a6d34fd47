"""Who wins the race of the noise that runtime/scan.py draws: decided in float64, among the few that can win."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from unsay.engine import noise, portable_math
from unsay.isa.scan import PART_TOKENS
from unsay.runtime.scan import Race

MARGIN = 1e-3
"""Far above the error of float32 scores and bounds of tokens that can win, which are at most 64 below the best."""


class Row(Protocol):
    """Logits by token id."""

    def __getitem__(self, token_id: int, /) -> float:
        """The logit of one token."""
        ...


class Contest(NamedTuple):
    """A race for the token with the largest row / temperature + Gumbel noise. best: the largest of the row."""

    race: Race
    row: Row
    best: float
    temperature: float

    def least_bound(self, first: int) -> float:
        """Whose bound is below this cannot win against `first`."""
        reached = (float(self.row[first]) - self.best) / self.temperature + gumbel(self.race.words[first])
        return math.exp(reached - MARGIN)

    def able(self, first: int) -> list[int]:
        """Ids, ascending, of all that can win; first: the one with the largest bound."""
        least, bounds = self.least_bound(first), self.race.bounds
        starts = [part * PART_TOKENS for part, reach in enumerate(self.race.reach) if reach >= least]
        return [
            start + place
            for start in starts
            for place, bound in enumerate(bounds[start : start + PART_TOKENS])
            if bound >= least
        ]

    def winner(self, able: Iterable[int]) -> int:
        """Of some ids (ascending) the one that wins, of equals the first."""
        return max(able, key=self._score)

    def _score(self, token_id: int) -> float:
        value = float(self.row[token_id]) / self.temperature - self.best / self.temperature
        return value - portable_math.log(noise.exponential(self.race.words[token_id]))


def gumbel(word: int) -> float:
    """The noise of a word, to 1e-12."""
    return -math.log(-math.log((word + 0.5) * 2.0**-32))
