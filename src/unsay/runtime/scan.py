"""What is read off a row of logits [V] before a token is chosen (docs/numerics.md N12, N13), in NumPy: the definition.

    survey   for each part of 1024 tokens, the largest score and the sum of the weights exp((score - largest) * inverse)
    race     the noise of every token, and what a token can score with it at most

A race is drawn from the softmax: the token whose exponential variate divided by its weight is least wins it, which is
the Gumbel-max rule without its logarithms. The bounds are f32; they find the few tokens that can win.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array
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


class Race(NamedTuple):
    """words: uint32 [V]. bounds: f32 [V], weight / (1 - u), which is above weight / -log u. reach: f32 [parts], the
    largest bound of each."""

    words: WordArray
    bounds: Float32Array
    reach: Float32Array


class Scan(Protocol):
    """Looks at rows. What it gives is valid until it looks at another."""

    def survey(self, scores: Float32Array, inverse: float) -> Survey:
        """N12 of scores [V]; inverse: 1 / temperature."""
        ...

    def race(self, scores: Float32Array, draw: Draw) -> Race:
        """N13 of scores [V], which are finite."""
        ...


class DefinedScan:
    """The definition, for executors that compute in the interpreter, and for tests."""

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
