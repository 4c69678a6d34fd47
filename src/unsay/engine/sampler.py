"""Which token comes next: a pure function of one row of logits and its lane.

    logits -> penalties -> bias -> / temperature -> top-k -> top-p -> min-p -> + noise -> the largest

Adding Gumbel noise and taking the largest draws from the softmax (the Gumbel-max rule): no sum over the vocabulary, and
a token's noise does not depend on which others are left. Whatever decides is computed by portable_math. The fast
functions of NumPy only find the few tokens that can still win, by a margin far above their error.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from unsay.core import Batch, Float32Array, Lane, SamplingParams
from unsay.engine import noise, portable_math
from unsay.engine.noise import NUM_SEEDS, IdArray
from unsay.engine.portable_math import Float64Array
from unsay.errors import RequestError

Row: TypeAlias = NDArray[np.floating]

_GREEDY_BELOW = 1e-4
"""A temperature below this is 0: dividing logits by it would leave nothing to draw."""
_MARGIN = 1e-3
"""Far above the error of float32 scores, which are at most 64 away from the largest."""
_SLICE = 8192
"""Tokens looked at together; a multiple of 4. Keeps every array below 128 KB."""
_SUM_MARGIN = 1e-9
"""Far above the error of float64 sums over a vocabulary, relative to the total."""
_TOP_P_DEPTHS = (-6.0, -12.0)
"""How far below the largest to rank at first: sorting a whole vocabulary is what costs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The token chosen, and the model's log-probability of it (temperature 1, before penalties).

    logprob is NaN if the logits are not finite: then no token was chosen.
    """

    token_id: int
    logprob: float


class Sampler:
    """Chooses a token for each lane of a batch."""

    def sample(self, logits: Float32Array | None, batch: Batch) -> list[Choice | None] | None:
        """One Choice for each row of logits [R, V], in order; None for a step that was interrupted.

        A row that follows a guess which was not chosen is worth nothing: None.
        """
        if logits is None:
            return None
        assert len(logits) == len(batch.lanes), (logits.shape, len(batch.lanes))
        choices: list[Choice | None] = []
        for row, lane in zip(logits, batch.lanes, strict=True):
            stands = lane.guess is None or (choices[-1] is not None and choices[-1].token_id == lane.guess)
            choices.append(choose(row, lane) if stands else None)
        return choices


def choose(logits: Float32Array, lane: Lane) -> Choice:
    """The next token of a lane, from its logits [V]."""
    if not math.isfinite(logits.max()):
        return Choice(-1, math.nan)
    params = lane.params
    adjusted = _adjust(logits, lane)
    if params.temperature < _GREEDY_BELOW:
        token_id = int(adjusted.argmax())
    else:
        token_id = _draw(adjusted, _keep(adjusted, params), params, lane.position)
    return Choice(token_id, _logprob(logits, token_id))


def _logprob(logits: Float32Array, token_id: int) -> float:
    largest = logits.max()
    parts = (logits[start : start + _SLICE] - largest for start in range(0, logits.size, _SLICE))
    total = sum(float(np.exp(part).sum(dtype=np.float64)) for part in parts)
    return float(logits[token_id] - largest) - math.log(total)


def _adjust(logits: Float32Array, lane: Lane) -> Row:
    """Penalties and bias; the row itself when there are none."""
    params = lane.params
    adjusted: Row = logits
    if params.repetition_penalty != 1.0 and lane.history:
        adjusted = logits.astype(np.float64)
        seen = np.unique(np.asarray(lane.history, np.int64))
        values = adjusted[seen]
        penalty = params.repetition_penalty
        adjusted[seen] = np.where(values > 0, values / penalty, values * penalty)
    if (params.presence_penalty or params.frequency_penalty) and len(lane.history) > lane.answer_start:
        adjusted = adjusted.astype(np.float64)
        answer = np.asarray(lane.history[lane.answer_start :], np.int64)
        ids, counts = np.unique(answer, return_counts=True)
        adjusted[ids] -= params.presence_penalty + params.frequency_penalty * counts
    if params.logit_bias:
        adjusted = adjusted.astype(np.float64)
        for token_id, bias in params.logit_bias.items():
            adjusted[token_id] += bias
    return adjusted


def _keep(adjusted: Row, params: SamplingParams) -> IdArray | None:
    """Ids, ascending, of the tokens that pass the filters and can still win; None: nothing filters, and most can."""
    reach = noise.MAX_SPREAD
    if params.min_p > 0.0:
        reach = min(reach, -_log_of(params.min_p))
    if params.top_k == 0 and params.top_p >= 1.0:
        near = adjusted >= float(adjusted.max()) - (reach * params.temperature + _MARGIN)
        if params.min_p == 0.0:
            return None if 4 * np.count_nonzero(near) > near.size else np.flatnonzero(near)
        ids = np.flatnonzero(near)
    else:
        ids = _top_k(adjusted, params.top_k)
    values = adjusted[ids].astype(np.float64) / params.temperature
    values -= values.max()
    if params.top_p < 1.0:
        places = _top_p(values, params.top_p)
        ids, values = ids[places], values[places]
    return np.sort(ids[values >= -reach])


def _top_k(adjusted: Row, top_k: int) -> IdArray:
    """Ids of the k best, of equals the lower; of all for 0."""
    if top_k == 0 or top_k >= adjusted.size:
        return np.arange(adjusted.size)
    threshold = np.partition(adjusted, adjusted.size - top_k)[adjusted.size - top_k]
    above, equal = np.flatnonzero(adjusted > threshold), np.flatnonzero(adjusted == threshold)
    return np.concatenate([above, equal[: top_k - above.size]])


def _top_p(values: Float64Array, top_p: float) -> IdArray:
    """Places of the fewest best that together have probability `top_p` or more; the best value is 0."""
    total = float(np.exp(values).sum())
    for depth in _TOP_P_DEPTHS:
        ranked = _ranked(values, values >= depth)
        sums = np.cumsum(np.exp(values[ranked]))
        count = int(np.searchsorted(sums, top_p * total)) + 1
        is_certain = np.all(np.abs(sums[max(0, count - 2) : count] - top_p * total) > _SUM_MARGIN * total)
        if count <= sums.size and is_certain:
            return ranked[:count]
    return _top_p_exactly(values, top_p)


def _top_p_exactly(values: Float64Array, top_p: float) -> IdArray:
    """The definition."""
    ranked = _ranked(values, np.ones(values.size, np.bool_))
    sums = portable_math.running_sum(portable_math.exp(values[ranked]))
    return ranked[: int(np.searchsorted(sums, top_p * float(sums[-1]))) + 1]


def _ranked(values: Float64Array, mask: NDArray[np.bool_]) -> IdArray:
    """Places in the mask, the largest value first, of equals the lower place."""
    places = np.flatnonzero(mask)
    return places[np.argsort(-values[places], kind="stable")]


def _draw(adjusted: Row, ids: IdArray | None, params: SamplingParams, position: int) -> int:
    """The id of the largest adjusted / temperature + Gumbel noise among `ids` (ascending) or all; the first of equals.

    -log(1 - u) bounds the noise from above: whoever's bound is below a score already reached cannot win. Goes through
    the vocabulary in slices: arrays of all of it are returned to the system and faulted in again at every token.
    """
    size = adjusted.size if ids is None else ids.size
    best = float(adjusted.max()) / params.temperature
    reached = -math.inf
    finalists: list[tuple[IdArray, Float64Array, noise.WordArray]] = []
    for start in range(0, size, _SLICE):
        stop = min(size, start + _SLICE)
        if ids is None:
            part, word = np.arange(start, stop), noise.words_of_range(params.seed, position, start, stop)
            row = adjusted[start:stop]
        else:
            part, word = ids[start:stop], noise.words(params.seed, position, ids[start:stop])
            row = adjusted[part]
        values = row.astype(np.float64) / params.temperature - best
        bound = values.astype(np.float32) - np.log(noise.lower_bound(word))
        first = int(bound.argmax())
        reached = max(reached, _approximate_score(float(values[first]), int(word[first])))
        able = bound >= reached - _MARGIN
        finalists.append((part[able], values[able], word[able]))
    tokens, values, word = (np.concatenate(column) for column in zip(*finalists, strict=True))
    return int(tokens[_score(values, word).argmax()])


def _score(values: Float64Array, word: noise.WordArray) -> Float64Array:
    """values + Gumbel noise, exactly the same on every machine."""
    return values - portable_math.log(noise.exponential(word))


def _approximate_score(value: float, word: int) -> float:
    """The same to 1e-12, for one token."""
    return value - math.log(-math.log((word + 0.5) * 2.0**-32))


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
