"""Percentiles by nearest rank."""

from __future__ import annotations

import pytest

from unsay.benchmark.timing import percentile, timing


@pytest.mark.parametrize(("percent", "expected"), [(1, 1), (50, 50), (99, 99), (100, 100)])
def test_percentile_of_a_hundred_is_that_sample(percent: float, expected: int) -> None:
    assert percentile(range(1, 101), percent) == expected


def test_percentile_of_one_sample_is_it() -> None:
    assert percentile([7.0], 50) == percentile([7.0], 99) == 7.0


def test_summary_is_in_microseconds_and_needs_no_order() -> None:
    summary = timing([3e-6, 1e-6, 2e-6])
    assert (summary.p50_us, summary.p99_us, summary.max_us, summary.count) == (2.0, 3.0, 3.0, 3)
