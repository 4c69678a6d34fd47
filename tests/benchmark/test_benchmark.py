"""The measurements run and measure what they say, on a tiny model; their figures are not judged here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import unsay
from unsay.benchmark.contexts import computed, prompt, token_ids
from unsay.benchmark.correct import correct
from unsay.benchmark.forks import fork
from unsay.benchmark.hardware import describe
from unsay.benchmark.throughput import decode, prefill
from unsay.errors import RequestError


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Iterator[unsay.Model]:
    with unsay.load(tiny_path) as loaded:
        yield loaded


def test_contexts_have_the_length_asked_for(model: unsay.Model) -> None:
    assert len(token_ids(model, 333)) == 333
    with computed(model, 333, 4) as session:
        assert abs(len(session.token_ids) - 337) <= 4


def test_a_context_too_long_for_the_model_is_refused(model: unsay.Model) -> None:
    with pytest.raises(RequestError, match=r"1\.\.1023"):
        prompt(model, 1024, 1024)


def test_an_unread_prompt_is_computed_up_to_its_last_tokens(model: unsay.Model) -> None:
    with prompt(model, 300, 100) as session:
        assert 180 <= session._timeline.context.branch.length <= 200
        assert abs(len(session.token_ids) - 300) <= 6


def test_a_correction_computes_what_was_injected_and_at_most_a_page_more(model: unsay.Model) -> None:
    result = correct(model, context=100, samples=5)
    assert result.injected <= result.computed <= result.injected + 16
    for measured in (result.stop_decode, result.stop_prefill, result.cold_calls, result.inject_to_token):
        assert measured.count == 5 and 0 < measured.p50_us <= measured.p99_us
    assert result.stop_decode.p50_us < result.taken_back_decode.p50_us
    assert result.stop_prefill.p50_us < result.taken_back_prefill.p50_us
    for measured in (result.rollback, result.fork):
        assert measured.count == 50 and 0 < measured.p50_us <= measured.p99_us
    assert result.load >= 0


def test_forks_take_no_page(model: unsay.Model) -> None:
    result = fork(model, context=200, num_forks=50)
    assert result.added_pages == 0
    assert 0 < result.allocated_bytes < 50 * 2000
    assert result.pages_of_context == 13


def test_throughput_counts_every_session(model: unsay.Model) -> None:
    result = decode(model, context=32, num_sessions=3, num_tokens=6, weights_bytes=10**6, read_bandwidth=1e9)
    assert result.tokens == 18
    assert result.limit_tokens_per_s == 3000
    assert prefill(model, num_tokens=40, repeats=3).tokens == 40


def test_measuring_leaves_no_pages_behind(model: unsay.Model) -> None:
    fork(model, context=64, num_forks=3)
    model.tree.check()
    assert model.tree.pool.num_used == 0


def test_the_machine_is_described() -> None:
    hardware = describe()
    assert hardware.cores >= 1
    assert hardware.read_bandwidth > 1e8
