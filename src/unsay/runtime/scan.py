"""What is read off a row of logits [V] before a token is chosen (docs/numerics.md N12, N13).

    survey   for each part of 1024 tokens, the largest score and the sum of the weights exp((score - largest) * inverse)
    race     the noise of every token, and what a token can score with it at most
    glance   what these say of a row that a step makes: enough for greedy choice, and mostly for a draw

A race is drawn from the softmax: the token whose exponential variate divided by its weight is least wins it, which is
the Gumbel-max rule without its logarithms. The bounds are f32; they find the few tokens that can win. The definition is
runtime/defined_scan.py, in NumPy; runtime/native_scan.py has machine code look.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from unsay.core import Float32View, Lane, SamplingParams
from unsay.isa.scan import PART_TOKENS

WordView: TypeAlias = "memoryview[int]"
"""Of format "I"."""


class Survey(NamedTuple):
    """largest, weight: f32 [parts], where the last part may be short. largest is NaN where a score is."""

    largest: Float32View
    weight: Float32View


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
    if not lane.is_plain or params.temperature < GREEDY_BELOW:
        return None
    return Draw(0.0, 1.0 / params.temperature, params.seed, lane.position)


class Race(NamedTuple):
    """words: uint32 [V]. bounds: f32 [V], weight / (1 - u), which is above weight / -log u. reach: f32 [parts], the
    largest bound of each."""

    words: WordView
    bounds: Float32View
    reach: Float32View


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

    def glance(self, number: int, logits: Float32View, draw: Draw | None) -> Glance:
        """Row `number` of the last step, which are these logits [V]. draw: what was asked for, its shift left open."""
        ...

    def survey(self, scores: Float32View, inverse: float) -> Survey:
        """N12 of scores [V]; inverse: 1 / temperature."""
        ...

    def race(self, scores: Float32View, draw: Draw) -> Race:
        """N13 of scores [V], which are finite."""
        ...


def first_largest(row: Float32View, parts: Float32View) -> int:
    """The first token with the largest of a row; parts: the largest of each part. None of them is NaN."""
    start = _place_of_largest(parts) * PART_TOKENS
    return start + _place_of_largest(row[start : start + PART_TOKENS])


def _place_of_largest(values: Float32View) -> int:
    listed = values.tolist()
    return listed.index(max(listed))
