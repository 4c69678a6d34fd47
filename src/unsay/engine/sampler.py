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
from typing import Any, TypeAlias

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
_SUM_MARGIN = 1e-9
"""Far above the error of float64 sums over a vocabulary, relative to the total."""
_TOP_P_DEPTHS = (-6.0, -12.0)
"""How far below the largest to rank at first: sorting a whole vocabulary is what costs."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The token chosen, and the model's log-probability of it (temperature 1, before penalties)."""

    token_id: int
    logprob: float


class Sampler:
    """Chooses a token for each lane of a batch."""

    def sample(self, logits: Float32Array | None, batch: Batch) -> list[Choice] | None:
        """One Choice for each row of logits [R, V], in order; None for a step that was interrupted."""
        if logits is None:
            return None
        assert len(logits) == len(batch.lanes), (logits.shape, len(batch.lanes))
        return [choose(row, lane) for row, lane in zip(logits, batch.lanes, strict=True)]


def choose(logits: Float32Array, lane: Lane) -> Choice:
    """The next token of a lane, from its logits [V]."""
    params = lane.params
    adjusted = _adjust(logits, lane)
    if params.temperature < _GREEDY_BELOW:
        token_id = int(adjusted.argmax())
    else:
        scaled = adjusted.astype(np.float64) / params.temperature
        ids = _keep(scaled, params)
        token_id = _draw(scaled, ids, params.seed, lane.position)
    return Choice(token_id, _logprob(logits, token_id))


def _logprob(logits: Float32Array, token_id: int) -> float:
    largest = logits.max()
    total = np.exp(logits - largest).sum(dtype=np.float64)
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


def _keep(scaled: Float64Array, params: SamplingParams) -> IdArray | None:
    """Ids, ascending, of the tokens that pass the filters and can still win; None if that is most of them."""
    best = scaled.max()
    cut = best - noise.MAX_SPREAD
    if params.min_p > 0.0:
        cut = max(cut, best + _log_of(params.min_p))
    if params.top_k == 0 and params.top_p >= 1.0:
        able = scaled >= cut
        return None if params.min_p == 0.0 and 4 * np.count_nonzero(able) > able.size else np.flatnonzero(able)
    ids = _top_k(scaled, np.flatnonzero(scaled >= best + portable_math.EXP_UNDERFLOW), params.top_k)
    if params.top_p < 1.0:
        ids = _top_p(scaled, ids, params.top_p)
    return np.sort(ids[scaled[ids] >= cut])


def _top_k(scaled: Float64Array, ids: IdArray, top_k: int) -> IdArray:
    """The k best of the ids; of equals the lower id."""
    if top_k == 0 or top_k >= ids.size:
        return ids
    values = scaled[ids]
    threshold = np.partition(values, ids.size - top_k)[ids.size - top_k]
    above = ids[values > threshold]
    return np.concatenate([above, ids[values == threshold][: top_k - above.size]])


def _top_p(scaled: Float64Array, ids: IdArray, top_p: float) -> IdArray:
    """The fewest best of the ids that together have probability `top_p` or more among them, best first."""
    shifted = scaled[ids] - scaled[ids].max()
    total = float(np.exp(shifted).sum())
    for depth in _TOP_P_DEPTHS:
        ranked = _ranked(shifted, shifted >= depth)
        sums = np.cumsum(np.exp(shifted[ranked]))
        count = int(np.searchsorted(sums, top_p * total)) + 1
        is_certain = np.all(np.abs(sums[max(0, count - 2) : count] - top_p * total) > _SUM_MARGIN * total)
        if count <= sums.size and is_certain:
            return ids[ranked[:count]]
    return ids[_top_p_exactly(shifted, top_p)]


def _top_p_exactly(shifted: Float64Array, top_p: float) -> IdArray:
    """The definition: places, best first."""
    ranked = _ranked(shifted, np.ones(shifted.size, np.bool_))
    sums = portable_math.running_sum(portable_math.exp(shifted[ranked]))
    return ranked[: int(np.searchsorted(sums, top_p * float(sums[-1]))) + 1]


def _ranked(values: Float64Array, mask: NDArray[np.bool_]) -> IdArray:
    """Places in the mask, the largest value first, of equals the lower place."""
    places = np.flatnonzero(mask)
    return places[np.argsort(-values[places], kind="stable")]


def _draw(scaled: Float64Array, ids: IdArray | None, seed: int, position: int) -> int:
    """The id with the largest scaled + Gumbel noise, among `ids` (ascending, so that the lowest wins a tie) or all.

    -log(1 - u) bounds the noise from above: whoever's bound is below a score already reached cannot win.
    """
    word = noise.words(seed, position, ids, scaled.size)
    values = (scaled if ids is None else scaled[ids]) - scaled.max()
    bound = values.astype(np.float32) - np.log(noise.lower_bound(word))
    reached = _score(values, word, np.array([bound.argmax()]))[0]
    able = np.flatnonzero(bound >= reached - _MARGIN)
    winner = able[_score(values, word, able).argmax()]
    return int(winner if ids is None else ids[winner])


def _score(values: Float64Array, word: noise.WordArray, places: IdArray) -> Float64Array:
    """values + Gumbel noise at these places, exactly the same on every machine."""
    return values[places] - portable_math.log(noise.exponential(word[places]))


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


def _check_number(name: str, value: object, low: float, high: float, hint: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}: it must be a number in {low:g}..{high:g} ({hint})")


def _check_integer(name: str, value: object, low: int, high: int, hint: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise RequestError(f"{name} is {value!r}: it must be an integer in {low}..{high} ({hint})")


def _check_bias(bias: dict[int, float], vocab_size: int) -> None:
    for token_id, value in bias.items():
        _check_integer("logit_bias token id", token_id, 0, vocab_size - 1, "the vocabulary")
        _check_number(f"logit_bias of token {token_id}", value, -1000.0, 1000.0, "-1000 bans, 0 is off")


def _check_stop(stop: object) -> None:
    if not isinstance(stop, tuple) or not all(isinstance(text, str) and text for text in stop):  # pyright: ignore
        raise RequestError(f"stop is {stop!r}: it must be a tuple of non-empty strings, as stop=('END',)")
