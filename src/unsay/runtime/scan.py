"""What is read off a row of logits [V] before a token is chosen (docs/numerics.md N12, N13), in NumPy: the definition.

    survey   for each part of 1024 tokens, the largest score and the sum of the weights exp((score - largest) * inverse)
    race     the noise of every token, and what a token can score with it at most
    glance   what these say of a row that a step makes: enough for greedy choice, and mostly for a draw

A race is drawn from the softmax: the token whose exponential variate divided by its weight is least wins it, which is
the Gumbel-max rule without its logarithms. The bounds are f32; they find the few tokens that can win.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array, Lane, SamplingParams
from unsay.isa.scan import PART_TOKENS
from unsay.runtime.arithmetic import exp, f32, sum16
from unsay.runtime.philox import philox

WordArray: TypeAlias = NDArray[np.uint32]

_LOW = 0xFFFFFFFF


class Survey(NamedTuple):
    """largest, weight: f32 [parts], where the last part may be short. largest is NaN where a score is."""

    largest: Float32Array
    weight: Float32Array


class Draw(NamedTuple):
    """What a race is over: exp((score - shift) * inverse), and the key of the noise.

    shift: the largest score. inverse: 1 / temperature.
    """

    shift: float
    inverse: float
    seed: int
    position: int


GREEDY_BELOW = 1e-4
"""A temperature below this is 0: dividing logits by it would leave nothing to draw."""


def is_plain(params: SamplingParams) -> bool:
    """Whether nothing changes the logits, and nothing but the noise chooses among the tokens."""
    return (
        params.repetition_penalty == 1.0 and not params.presence_penalty and not params.frequency_penalty
        and not params.logit_bias and params.top_k == 0 and params.top_p == 1.0 and params.min_p == 0.0
    )  # fmt: skip


def draw_of(lane: Lane) -> Draw | None:
    """What a step itself can draw for a lane: None for a greedy one, and where more than the noise decides."""
    params = lane.params
    if params.temperature < GREEDY_BELOW or not is_plain(params):
        return None
    return Draw(0.0, 1.0 / params.temperature, params.seed, lane.position)


class Race(NamedTuple):
    """words: uint32 [V]. bounds: f32 [V], weight / (1 - u), which is above weight / -log u. reach: f32 [parts], the
    largest bound of each."""

    words: WordArray
    bounds: Float32Array
    reach: Float32Array


class Glance(NamedTuple):
    """largest, likeliest: the largest logit, NaN if one is, and the first token that has it. total: of the weights at
    temperature 1. bound, leader, word: the largest bound of a race, the first token that has it, and its word;
    next_bound: the largest bound of the others. They say nothing where no race was asked for."""

    largest: float
    likeliest: int
    total: float
    bound: float
    next_bound: float
    leader: int
    word: int


class Scan(Protocol):
    """Looks at rows. What it gives is valid until it looks at another."""

    def glance(self, number: int, logits: Float32Array, draw: Draw | None) -> Glance:
        """Row `number` of the last step, which are these logits [V]. draw: what was asked for, its shift left open."""
        ...

    def survey(self, scores: Float32Array, inverse: float) -> Survey:
        """N12 of scores [V]; inverse: 1 / temperature."""
        ...

    def race(self, scores: Float32Array, draw: Draw) -> Race:
        """N13 of scores [V], which are finite."""
        ...


def look(scan: Scan, logits: Float32Array, draw: Draw | None) -> Glance:
    """The definition of a glance."""
    survey = scan.survey(logits, 1.0)
    largest = float(survey.largest.max())
    total = float(np.add.accumulate(survey.weight, dtype=np.float64)[-1])
    if not math.isfinite(largest):
        return Glance(largest, -1, total, 0.0, 0.0, -1, 0)
    likeliest = first_largest(logits, survey.largest)
    if draw is None:
        return Glance(largest, likeliest, total, 0.0, 0.0, -1, 0)
    race = scan.race(logits, draw._replace(shift=largest))
    leader = first_largest(race.bounds, race.reach)
    others = np.delete(race.bounds, leader)
    next_bound = float(others.max(initial=0.0))
    return Glance(largest, likeliest, total, float(race.bounds[leader]), next_bound, leader, int(race.words[leader]))


def first_largest(row: Float32Array, parts: Float32Array) -> int:
    """The first token with the largest of a row; parts: the largest of each part."""
    start = int(parts.argmax()) * PART_TOKENS
    return start + int(row[start : start + PART_TOKENS].argmax())


class DefinedScan:
    """The definition, for executors that compute in the interpreter, and for tests."""

    def glance(self, number: int, logits: Float32Array, draw: Draw | None) -> Glance:
        """Computed here: there is no step that did."""
        return look(self, logits, draw)

    def survey(self, scores: Float32Array, inverse: float) -> Survey:
        """N12."""
        with np.errstate(all="ignore"):
            parts = _in_parts(scores, -np.inf)
            largest = parts.max(axis=1)
            return Survey(largest, sum16(exp((parts - largest.max()) * f32(inverse))))

    def race(self, scores: Float32Array, draw: Draw) -> Race:
        """N13."""
        drawn = words(draw.seed, draw.position, scores.size)
        rest: Float32Array = ((~drawn).astype(np.float32) + f32(0.5)) * f32(2.0**-32)
        with np.errstate(all="ignore"):
            bounds: Float32Array = exp((scores - f32(draw.shift)) * f32(draw.inverse)) / rest
        return Race(drawn, bounds, _in_parts(bounds, 0.0).max(axis=1))


def words(seed: int, position: int, num_tokens: int) -> WordArray:
    """The random words of the tokens 0..num_tokens-1: word token % 4 of the four of counter token // 4."""
    counters = np.arange(-(-num_tokens // 4), dtype=np.uint64)
    place, zero = np.full_like(counters, position), np.zeros_like(counters)
    four = philox((counters, place, zero, zero), (seed & _LOW, seed >> 32))
    return np.stack(four, axis=1).astype(np.uint32).reshape(-1)[:num_tokens]


def _in_parts(row: Float32Array, fill: float) -> Float32Array:
    """[parts, PART_TOKENS], the last one filled up."""
    filling = np.full(-row.size % PART_TOKENS, fill, np.float32)
    return np.concatenate([row, filling]).reshape(-1, PART_TOKENS)
