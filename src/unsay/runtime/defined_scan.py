"""The definition of runtime/scan.py, in NumPy."""

from __future__ import annotations

import math
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array, Float32View
from unsay.isa.scan import PART_TOKENS
from unsay.runtime.arithmetic import exp, f32, sum16
from unsay.runtime.philox import philox
from unsay.runtime.scan import Draw, Glance, Race, Scan, Survey, first_largest

WordArray: TypeAlias = NDArray[np.uint32]

_LOW = 0xFFFFFFFF


def look(scan: Scan, logits: Float32View, draw: Draw | None) -> Glance:
    """The definition of a glance."""
    survey = scan.survey(logits, 1.0)
    largest = float(np.max(survey.largest))
    total = float(np.add.accumulate(survey.weight, dtype=np.float64)[-1])
    if not math.isfinite(largest):
        return Glance(largest, -1, total, 0.0, 0.0, -1, 0)
    likeliest = first_largest(logits, survey.largest)
    if draw is None:
        return Glance(largest, likeliest, total, 0.0, 0.0, -1, 0)
    race = scan.race(logits, draw._replace(shift=largest))
    leader = first_largest(race.bounds, race.reach)
    next_bound = float(np.delete(race.bounds, leader).max(initial=0.0))
    return Glance(largest, likeliest, total, race.bounds[leader], next_bound, leader, race.words[leader])


class DefinedScan:
    """The definition, for executors that compute in the interpreter, and for tests."""

    def glance(self, number: int, logits: Float32View, draw: Draw | None) -> Glance:
        """Computed here: there is no step that did."""
        return look(self, logits, draw)

    def survey(self, scores: Float32View, inverse: float) -> Survey:
        """N12."""
        with np.errstate(all="ignore"):
            parts = _in_parts(np.asarray(scores), -np.inf)
            largest = parts.max(axis=1)
            return Survey(in_view(largest), in_view(sum16(exp((parts - largest.max()) * f32(inverse)))))

    def race(self, scores: Float32View, draw: Draw) -> Race:
        """N13."""
        drawn = words(draw.seed, draw.position, len(scores))
        rest: Float32Array = ((~drawn).astype(np.float32) + f32(0.5)) * f32(2.0**-32)
        with np.errstate(all="ignore"):
            bounds: Float32Array = exp((np.asarray(scores) - f32(draw.shift)) * f32(draw.inverse)) / rest
        return Race(drawn.data, in_view(bounds), in_view(_in_parts(bounds, 0.0).max(axis=1)))


def in_view(array: Float32Array) -> Float32View:
    """A row of NumPy's as rows travel."""
    return cast(Float32View, array.data)


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
