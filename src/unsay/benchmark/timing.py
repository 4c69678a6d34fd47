"""Samples of a duration, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Of `count` samples, in microseconds. Percentiles are samples, by nearest rank."""

    p50_us: float
    p99_us: float
    max_us: float
    count: int

    def __str__(self) -> str:
        return f"p50 {self.p50_us:.1f} us, p99 {self.p99_us:.1f} us, max {self.max_us:.1f} us of {self.count}"


def timing(seconds: Sequence[float]) -> Timing:
    """Summary of samples in seconds."""
    ordered = sorted(seconds)
    return Timing(
        round(1e6 * percentile(ordered, 50), 3), round(1e6 * percentile(ordered, 99), 3),
        round(1e6 * ordered[-1], 3), len(ordered),
    )  # fmt: skip


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of ascending samples that at least `percent` of them do not exceed."""
    assert ordered and 0 < percent <= 100, (len(ordered), percent)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
