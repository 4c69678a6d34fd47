"""The figures of a correction follow the verbs."""

from __future__ import annotations

from time import perf_counter

from unsay.session.correction import Corrections


def rollback_s(corrections: Corrections) -> float:
    assert corrections.last is not None
    return corrections.last.rollback_s


def test_a_rollback_and_its_injection_are_one_correction() -> None:
    corrections = Corrections()
    corrections.rollback(10, 5, perf_counter())
    corrections.inject(10, 3, started=0.0)
    correction = corrections.last
    assert correction is not None
    assert (correction.num_kept, correction.num_dropped, correction.num_injected) == (10, 5, 3)
    assert correction.rollback_s > 0
    assert (correction.first_token_s, correction.num_computed) == (None, None)


def test_the_first_token_completes_it_and_later_ones_do_not_change_it() -> None:
    corrections = Corrections()
    corrections.first_token(9)
    assert corrections.last is None
    corrections.rollback(10, 5, perf_counter())
    corrections.first_token(4)
    first = corrections.last
    assert first is not None
    assert first.num_computed == 4
    assert first.first_token_s is not None
    corrections.first_token(5)
    assert corrections.last == first


def test_an_injection_after_a_token_is_a_correction_of_its_own() -> None:
    corrections = Corrections()
    corrections.rollback(10, 5, perf_counter())
    corrections.first_token(1)
    corrections.inject(11, 2, started=0.0)
    correction = corrections.last
    assert correction is not None
    assert (correction.num_kept, correction.num_dropped, correction.num_injected) == (11, 0, 2)


def test_several_rollbacks_before_a_token_are_one_correction() -> None:
    corrections = Corrections()
    corrections.rollback(60, 5, perf_counter())
    first = rollback_s(corrections)
    corrections.rollback(50, 10, perf_counter())
    corrections.inject(50, 4, started=0.0)
    assert corrections.last == (50, 15, 4, rollback_s(corrections), None, None)
    assert rollback_s(corrections) > first > 0


def test_an_injection_taken_back_is_not_counted() -> None:
    corrections = Corrections()
    corrections.inject(40, 6, started=0.0)
    corrections.rollback(43, 3, perf_counter())
    assert corrections.last == (40, 0, 3, rollback_s(corrections), None, None)
    corrections.rollback(38, 5, perf_counter())
    assert corrections.last == (38, 2, 0, rollback_s(corrections), None, None)


def test_a_correction_another_verb_follows_is_forgotten_and_one_a_token_followed_is_kept() -> None:
    corrections = Corrections()
    corrections.rollback(10, 5, perf_counter())
    corrections.forget()
    assert corrections.last is None
    corrections.inject(10, 3, started=0.0)
    assert corrections.last == (10, 0, 3, 0.0, None, None)
    corrections.first_token(3)
    done = corrections.last
    corrections.forget()
    assert corrections.last == done
