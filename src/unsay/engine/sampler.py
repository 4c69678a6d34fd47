"""Which token comes next: a pure function of one row of logits and its lane.

    logits -> penalties -> bias -> / temperature -> top-k -> top-p -> min-p -> + noise -> the largest

Adding Gumbel noise and taking the largest draws from the softmax (the Gumbel-max rule): no sum over the vocabulary, and
a token's noise does not depend on which others are left. Whatever decides is computed by portable_math. The bounds of
runtime/scan.py only find the few tokens that can still win, by a margin far above their error. What penalties, bias and
filters do is in filters.py, imported with NumPy by who first asks for them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from unsay.core import Batch, Float32View, Lane
from unsay.engine.race import MARGIN, Contest, gumbel
from unsay.runtime.scan import GREEDY_BELOW, Draw, Glance, Scan, draw_of, first_largest


class Choice(NamedTuple):
    """The token chosen, and the model's log-probability of it (temperature 1, before penalties).

    logprob is NaN if the logits are not finite: then no token was chosen.
    """

    token_id: int
    logprob: float


class Sampler:
    """Chooses a token for each lane of a batch. scan: what looks at the rows."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan

    def sample(self, logits: list[Float32View] | None, batch: Batch) -> list[Choice | None] | None:
        """One Choice for each of the R rows of logits [V], in order; None for a step that was interrupted.

        A row that follows a guess which was not chosen is worth nothing: None.
        """
        if logits is None:
            return None
        assert len(logits) == len(batch.lanes), (len(logits), len(batch.lanes))
        choices: list[Choice | None] = []
        for number, lane in enumerate(batch.lanes):
            stands = lane.guess is None or (choices[-1] is not None and choices[-1].token_id == lane.guess)
            choices.append(self._choose(logits[number], number, lane) if stands else None)
        return choices

    def _choose(self, row: Float32View, number: int, lane: Lane) -> Choice:
        draw = draw_of(lane)
        return _choose(row, lane, self._scan, draw, self._scan.glance(number, row, draw))


def choose(logits: Float32View, lane: Lane, scan: Scan | None = None) -> Choice:
    """The next token of a lane, from its logits [V]. scan: the definition if none is given."""
    from unsay.runtime.defined_scan import DefinedScan, look

    chosen, draw = scan or DefinedScan(), draw_of(lane)
    return _choose(logits, lane, chosen, draw, look(chosen, logits, draw))


def _choose(logits: Float32View, lane: Lane, scan: Scan, draw: Draw | None, seen: Glance) -> Choice:
    if not math.isfinite(seen.largest):
        return Choice(-1, math.nan)
    if draw is not None and _is_decided(logits, draw, seen):
        token_id = seen.leader
    else:
        token_id = _decide(logits, lane, scan, seen)
    return Choice(token_id, float(logits[token_id]) - seen.largest - math.log(seen.total))


def _is_decided(logits: Float32View, draw: Draw, seen: Glance) -> bool:
    """Whether the leader of the race wins it: no other token's bound is as large as what it surely scores."""
    reached = (float(logits[seen.leader]) - seen.largest) * draw.inverse + gumbel(seen.word)
    return seen.next_bound < math.exp(reached - MARGIN)


def _decide(logits: Float32View, lane: Lane, scan: Scan, seen: Glance) -> int:
    """Where a glance is not enough."""
    params = lane.params
    if not lane.is_plain:
        from unsay.engine.filters import decide

        return decide(logits, lane, scan, seen)
    if params.temperature < GREEDY_BELOW:
        return seen.likeliest
    race = scan.race(logits, Draw(seen.largest, 1.0 / params.temperature, params.seed, lane.position))
    contest = Contest(race, logits, seen.largest, params.temperature)
    return contest.winner(contest.able(first_largest(race.bounds, race.reach)))
