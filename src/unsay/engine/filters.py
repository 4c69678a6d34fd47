"""What penalties, bias, top-k, top-p and min-p leave of a row of logits, and what is drawn from that; in NumPy.

NumPy's own functions only find the few tokens that can still win. Where a sum decides, portable_arrays makes it.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array, Float32View, Lane, SamplingParams
from unsay.engine import noise, portable_arrays, portable_math
from unsay.engine.portable_arrays import Float64Array
from unsay.engine.race import MARGIN, Contest
from unsay.isa.scan import PART_TOKENS
from unsay.runtime.defined_scan import in_view
from unsay.runtime.scan import GREEDY_BELOW, Draw, Glance, Scan, first_largest

Row: TypeAlias = NDArray[np.floating]
IdArray: TypeAlias = NDArray[np.int64]

_WEIGHT_ERROR = 1e-4
"""Far above the error of a survey's weights, relative to their sum: 64 of f32 are added up, of exponents to 2^-17."""
_TOP_P_DEPTHS = (6.0, 12.0)
"""How far below the best to rank at first: sorting a whole vocabulary is what costs."""


def decide(logits: Float32View, lane: Lane, scan: Scan, seen: Glance) -> int:
    """The next token of a lane, where not the noise alone decides."""
    row = np.asarray(logits)
    adjusted = _adjust(row, lane)
    is_greedy = lane.params.temperature < GREEDY_BELOW
    if adjusted is row:
        best = seen.largest
        if is_greedy:
            return seen.likeliest
    else:
        best = float(adjusted.max())
        if is_greedy:
            return int(adjusted.argmax())
    return _draw(adjusted, best, _keep(adjusted, best, lane.params, scan), lane, scan)


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
        reach = min(reach, -portable_math.log(params.min_p))
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
    return np.flatnonzero(adjusted >= best - distance - MARGIN)


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
    survey = scan.survey(in_view(_scores(adjusted, best)[0]), 1.0 / params.temperature)
    total = float(portable_arrays.running_sum(np.asarray(survey.weight, np.float64))[-1])
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
    sums = portable_arrays.running_sum(portable_arrays.exp(values[ranked]))
    return ranked[: int(np.searchsorted(sums, top_p * float(sums[-1]))) + 1]


def _ranked(values: Float64Array) -> IdArray:
    """Places, the largest value first, of equals the lower place."""
    return np.argsort(-values, kind="stable")


def _draw(adjusted: Row, best: float, ids: IdArray | None, lane: Lane, scan: Scan) -> int:
    """The id of the largest adjusted / temperature + Gumbel noise among `ids` (ascending) or all; the first of equals.

    best: the largest of `adjusted`.
    """
    params = lane.params
    scores, shift = _scores(adjusted, best)
    race = scan.race(in_view(scores), Draw(shift, 1.0 / params.temperature, params.seed, lane.position))
    contest = Contest(race, adjusted, best, params.temperature)
    if ids is None:
        return contest.winner(contest.able(first_largest(race.bounds, race.reach)))
    bounds = np.asarray(race.bounds)[ids]
    return contest.winner(ids[bounds >= contest.least_bound(int(ids[bounds.argmax()]))].tolist())


def _scores(adjusted: Row, best: float) -> tuple[Float32Array, float]:
    """The row as f32, and the largest of it."""
    if adjusted.dtype == np.float32:
        return cast(Float32Array, adjusted), best
    return (adjusted - best).astype(np.float32), 0.0
