"""The figures of a correction follow the verbs."""

from __future__ import annotations

from unsay.session.correction import Stopwatch


def test_a_rollback_and_its_injection_are_one_correction() -> None:
    watch = Stopwatch()
    watch.rollback(10, 5, 0.25)
    watch.inject(10, 3, started=0.0)
    correction = watch.correction
    assert correction is not None
    assert (correction.num_kept, correction.num_dropped, correction.num_injected) == (10, 5, 3)
    assert (correction.rollback_s, correction.first_token_s, correction.num_computed) == (0.25, None, None)


def test_the_first_token_completes_it_and_later_ones_do_not_change_it() -> None:
    watch = Stopwatch()
    watch.first_token(9)
    assert watch.correction is None
    watch.rollback(10, 5, 0.25)
    watch.first_token(4)
    first = watch.correction
    assert first is not None
    assert first.num_computed == 4
    assert first.first_token_s is not None
    watch.first_token(5)
    assert watch.correction == first


def test_an_injection_after_a_token_is_a_correction_of_its_own() -> None:
    watch = Stopwatch()
    watch.rollback(10, 5, 0.25)
    watch.first_token(1)
    watch.inject(11, 2, started=0.0)
    correction = watch.correction
    assert correction is not None
    assert (correction.num_kept, correction.num_dropped, correction.num_injected) == (11, 0, 2)


def test_several_rollbacks_before_a_token_are_one_correction() -> None:
    watch = Stopwatch()
    watch.rollback(60, 5, 0.25)
    watch.rollback(50, 10, 0.5)
    watch.inject(50, 4, started=0.0)
    assert watch.correction == (50, 15, 4, 0.75, None, None)


def test_an_injection_taken_back_is_not_counted() -> None:
    watch = Stopwatch()
    watch.inject(40, 6, started=0.0)
    watch.rollback(43, 3, 0.25)
    assert watch.correction == (40, 0, 3, 0.25, None, None)
    watch.rollback(38, 5, 0.25)
    assert watch.correction == (38, 2, 0, 0.5, None, None)


def test_a_correction_another_verb_follows_is_forgotten_and_one_a_token_followed_is_kept() -> None:
    watch = Stopwatch()
    watch.rollback(10, 5, 0.25)
    watch.forget()
    assert watch.correction is None
    watch.inject(10, 3, started=0.0)
    assert watch.correction == (10, 0, 3, 0.0, None, None)
    watch.first_token(3)
    done = watch.correction
    watch.forget()
    assert watch.correction == done
