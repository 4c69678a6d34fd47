"""Which token comes next: a pure function of one row of logits and its lane.

    logits -> penalties -> bias -> / temperature -> top-k -> top-p -> min-p -> + noise -> the largest

Adding Gumbel noise and taking the largest draws from the softmax (the Gumbel-max rule): no sum over the vocabulary, and
a token's noise does not depend on which others are left. Whatever decides is computed by portable_math. The fast
functions of NumPy, and the bounds of runtime/scan.py, only find the few tokens that can still win, by a margin far
above their error.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from unsay.core import Batch, Float32Array, Lane, SamplingParams
from unsay.engine import noise, portable_math
from unsay.engine.noise import NUM_SEEDS
from unsay.engine.portable_math import Float64Array
from unsay.errors import RequestError
from unsay.isa.scan import PART_TOKENS
from unsay.runtime.scan import (
    GREEDY_BELOW,
    DefinedScan,
    Draw,
    Glance,
    Race,
    Scan,
    Survey,
    draw_of,
    first_largest,
    look,
)

Row: TypeAlias = NDArray[np.floating]
IdArray: TypeAlias = NDArray[np.int64]

_MARGIN = 1e-3
"""Far above the error of float32 scores and bounds of tokens that can win, which are at most 64 below the best."""
_WEIGHT_ERROR = 1e-4
"""Far above the error of a survey's weights, relative to their sum: 64 of f32 are added up, of exponents to 2^-17."""
_TOP_P_DEPTHS = (6.0, 12.0)
"""How far below the best to rank at first: sorting a whole vocabulary is what costs."""


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

    def sample(self, logits: Float32Array | None, batch: Batch) -> list[Choice | None] | None:
        """One Choice for each row of logits [R, V], in order; None for a step that was interrupted.

        A row that follows a guess which was not chosen is worth nothing: None.
        """
        if logits is None:
            return None
        assert len(logits) == len(batch.lanes), (logits.shape, len(batch.lanes))
        choices: list[Choice | None] = []
        for number, lane in enumerate(batch.lanes):
            stands = lane.guess is None or (choices[-1] is not None and choices[-1].token_id == lane.guess)
            choices.append(self._choose(logits, number, lane) if stands else None)
        return choices

    def _choose(self, logits: Float32Array, number: int, lane: Lane) -> Choice:
        draw, row = draw_of(lane), logits[number]
        return _choose(row, lane, self._scan, draw, self._scan.glance(number, row, draw))


_DEFINED = DefinedScan()


def choose(logits: Float32Array, lane: Lane, scan: Scan = _DEFINED) -> Choice:
    """The next token of a lane, from its logits [V]."""
    draw = draw_of(lane)
    return _choose(logits, lane, scan, draw, look(scan, logits, draw))


def _choose(logits: Float32Array, lane: Lane, scan: Scan, draw: Draw | None, seen: Glance) -> Choice:
    if not math.isfinite(seen.largest):
        return Choice(-1, math.nan)
    if draw is not None and _is_decided(logits, draw, seen):
        token_id = seen.leader
    else:
        token_id = _decide(logits, lane, scan, seen)
    return Choice(token_id, float(logits[token_id]) - seen.largest - math.log(seen.total))


def _is_decided(logits: Float32Array, draw: Draw, seen: Glance) -> bool:
    """Whether the leader of the race wins it: no other token's bound is as large as what it surely scores."""
    reached = (float(logits[seen.leader]) - seen.largest) * draw.inverse + _gumbel(seen.word)
    return seen.next_bound < math.exp(reached - _MARGIN)


def _decide(logits: Float32Array, lane: Lane, scan: Scan, seen: Glance) -> int:
    """Where a glance is not enough."""
    adjusted = _adjust(logits, lane)
    is_greedy = lane.params.temperature < GREEDY_BELOW
    if adjusted is logits:
        best = seen.largest
        if is_greedy:
            return seen.likeliest
    else:
        best = float(adjusted.max())
        if is_greedy:
            return int(adjusted.argmax())
    return _draw(adjusted, best, _keep(adjusted, best, lane.params, scan), lane, scan)


def _total(survey: Survey) -> float:
    return float(portable_math.running_sum(survey.weight.astype(np.float64))[-1])


def _adjust(logits: Float32Array, lane: Lane) -> Row:
    """Penalties and bias; the row itself when there are none."""
    params = lane.params
    adjusted: Row = logits
    if params.repetition_penalty != 1.0 and lane.history:
        adjusted = logits.astype(np.float64)
        seen = np.array(lane.history, np.int32)  # a token seen twice is written twice, and the same
        values = adjusted[seen]
        penalty = params.repetition_penalty
        adjusted[seen] = np.where(values > 0, values / penalty, values * penalty)
    if (params.presence_penalty or params.frequency_penalty) and len(lane.history) > lane.answer_start:
        adjusted = adjusted.astype(np.float64)
        answer = np.array(lane.history[lane.answer_start :], np.int32)
        ids, counts = np.unique(answer, return_counts=True)
        adjusted[ids] -= params.presence_penalty + params.frequency_penalty * counts
    if params.logit_bias:
        adjusted = adjusted.astype(np.float64)
        for token_id, bias in params.logit_bias.items():
            adjusted[token_id] += bias
    return adjusted


def _keep(adjusted: Row, best: float, params: SamplingParams, scan: Scan) -> IdArray | None:
    """Ids, ascending, of the tokens that pass the filters and can still win; None where nothing filters.

    best: the largest of `adjusted`.
    """
    reach = noise.MAX_SPREAD
    if params.min_p > 0.0:
        reach = min(reach, -_log_of(params.min_p))
    if 0 < params.top_k < adjusted.size:
        ids = _top_k(adjusted, params.top_k)
        if params.top_p < 1.0:
            ids = ids[_nucleus(_values(adjusted[ids], best, params), params.top_p)]
    elif params.top_p < 1.0:
        ids = _top_p(adjusted, best, params, scan)
    elif params.min_p > 0.0:
        ids = _near(adjusted, best, reach * params.temperature)
    else:
        return None
    return np.sort(ids[_values(adjusted[ids], best, params) >= -reach])


def _values(row: Row, best: float, params: SamplingParams) -> Float64Array:
    """What the softmax is of, at most 0."""
    return row.astype(np.float64) / params.temperature - best / params.temperature


def _near(adjusted: Row, best: float, distance: float) -> IdArray:
    """Ids, ascending, of all that are at most so far below the best, and perhaps a few more."""
    return np.flatnonzero(adjusted >= best - distance - _MARGIN)


def _top_k(adjusted: Row, top_k: int) -> IdArray:
    """Ids of the k best, of equals the lower.

    The best of each of k parts are k tokens: the k best of all are among those not below the least of these.
    """
    peaks = np.maximum.reduceat(adjusted, np.arange(0, adjusted.size, PART_TOKENS))
    floor = np.partition(peaks, -top_k)[-top_k] if top_k <= peaks.size else -np.inf
    ids = np.flatnonzero(adjusted >= floor)
    values = adjusted[ids]
    threshold = np.partition(values, ids.size - top_k)[ids.size - top_k]
    above, equal = ids[values > threshold], ids[values == threshold]
    return np.concatenate([above, equal[: top_k - above.size]])


def _top_p(adjusted: Row, best: float, params: SamplingParams, scan: Scan) -> IdArray:
    """Ids of the fewest best that together have probability `top_p` or more."""
    survey = scan.survey(_scores(adjusted, best)[0], 1.0 / params.temperature)
    total = _total(survey)
    goal, unsure = params.top_p * total, _WEIGHT_ERROR * total
    for depth in _TOP_P_DEPTHS:
        ids = _near(adjusted, best, depth * params.temperature)
        values = _values(adjusted[ids], best, params)
        ranked = _ranked(values)
        sums = np.cumsum(np.exp(values[ranked]))
        count = int(np.searchsorted(sums, goal)) + 1
        if count <= sums.size and np.all(np.abs(sums[max(0, count - 2) : count] - goal) > unsure):
            return ids[ranked[:count]]
    return _nucleus(_values(adjusted, best, params), params.top_p)


def _nucleus(values: Float64Array, top_p: float) -> IdArray:
    """The definition: places of the fewest best of `values` that together have probability `top_p` or more of all."""
    ranked = _ranked(values)
    sums = portable_math.running_sum(portable_math.exp(values[ranked]))
    return ranked[: int(np.searchsorted(sums, top_p * float(sums[-1]))) + 1]


def _ranked(values: Float64Array) -> IdArray:
    """Places, the largest value first, of equals the lower place."""
    return np.argsort(-values, kind="stable")


def _draw(adjusted: Row, best: float, ids: IdArray | None, lane: Lane, scan: Scan) -> int:
    """The id of the largest adjusted / temperature + Gumbel noise among `ids` (ascending) or all; the first of equals.

    best: the largest of `adjusted`. Whoever's bound is below a score already reached cannot win.
    """
    params = lane.params
    scores, shift = _scores(adjusted, best)
    race = scan.race(scores, Draw(shift, 1.0 / params.temperature, params.seed, lane.position))
    first = first_largest(race.bounds, race.reach) if ids is None else int(ids[race.bounds[ids].argmax()])
    reached = (float(adjusted[first]) - best) / params.temperature + _gumbel(int(race.words[first]))
    threshold = math.exp(reached - _MARGIN)
    able = _able(race, threshold) if ids is None else ids[race.bounds[ids] >= threshold]
    if able.size == 1:
        return first
    values = _values(adjusted[able], best, params)
    return int(able[(values - portable_math.log(noise.exponential(race.words[able]))).argmax()])


def _scores(adjusted: Row, best: float) -> tuple[Float32Array, float]:
    """The row as f32, and the largest of it."""
    if adjusted.dtype == np.float32:
        return cast(Float32Array, adjusted), best
    return (adjusted - best).astype(np.float32), 0.0


def _able(race: Race, threshold: float) -> IdArray:
    """Ids, ascending, of the bounds that reach a threshold."""
    starts = np.flatnonzero(race.reach >= threshold) * PART_TOKENS
    return np.concatenate(
        [start + np.flatnonzero(race.bounds[start : start + PART_TOKENS] >= threshold) for start in starts]
    )


def _gumbel(word: int) -> float:
    """The noise of a word, to 1e-12."""
    return -math.log(-math.log((word + 0.5) * 2.0**-32))


def _log_of(value: float) -> float:
    return float(portable_math.log(np.array([value]))[0])


def changed(params: SamplingParams, fields: dict[str, Any]) -> SamplingParams:
    """The params with these fields; RequestError names one that does not exist."""
    names = [field.name for field in dataclasses.fields(params)]
    for name in fields:
        if name not in names:
            raise RequestError(f"there is no sampling parameter {name!r}; there are: {', '.join(names)}")
    return dataclasses.replace(params, **fields)


def validate(params: SamplingParams, vocab_size: int) -> None:
    """Raise RequestError if a field is outside what is allowed, naming the field, the value and the range."""
    _check_number("temperature", params.temperature, 0.0, 100.0, "0 is greedy")
    _check_number("top_p", params.top_p, 0.0, 1.0, "1 is off")
    _check_number("min_p", params.min_p, 0.0, 1.0, "0 is off")
    _check_number("repetition_penalty", params.repetition_penalty, 0.01, 100.0, "1 is off")
    _check_number("presence_penalty", params.presence_penalty, -100.0, 100.0, "0 is off")
    _check_number("frequency_penalty", params.frequency_penalty, -100.0, 100.0, "0 is off")
    _check_integer("top_k", params.top_k, 0, 2**31 - 1, "0 is off, more than the vocabulary keeps all")
    _check_integer("seed", params.seed, 0, NUM_SEEDS - 1, "there is no 'random' value: draw one yourself")
    _check_integer("max_tokens", params.max_tokens, 1, 2**31 - 1, "the context may end an answer sooner")
    _check_bias(params.logit_bias, vocab_size)
    _check_stop(params.stop)
    if not isinstance(params.ignore_eos, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RequestError(f"ignore_eos is {params.ignore_eos!r}: it must be True or False")


def _check_number(name: str, value: object, low: float, high: float, hint: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}: it must be a number in {low:g}..{high:g} ({hint})")


def _check_integer(name: str, value: object, low: int, high: int, hint: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}: it must be an integer in {low}..{high} ({hint})")


def _check_bias(bias: object, vocab_size: int) -> None:
    if not isinstance(bias, dict):
        raise RequestError(
            f"logit_bias is {bias!r}: it must be a dictionary from token id to bias, as logit_bias={{5: -1.0}}"
        )
    for token_id, value in cast(dict[object, object], bias).items():
        _check_integer("logit_bias token id", token_id, 0, vocab_size - 1, "the vocabulary")
        _check_number(f"logit_bias of token {token_id}", value, -1000.0, 1000.0, "-1000 bans, 0 is off")


def _check_stop(stop: object) -> None:
    if not isinstance(stop, tuple) or not all(isinstance(text, str) and text for text in stop):  # pyright: ignore
        raise RequestError(f"stop is {stop!r}: it must be a tuple of non-empty strings, as stop=('END',)")
