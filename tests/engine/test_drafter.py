"""Guesses: what followed the same tokens the last time, as many as lately stood."""

from __future__ import annotations

import pytest

from unsay.engine.drafter import MAX_GUESSES, Drafter

ROUND = [300, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_what_followed_the_last_time_is_guessed_again() -> None:
    assert Drafter([*ROUND, 1, 2, 3]).propose(5) == [4, 5]
    assert Drafter([7, 8, 1, 7, 8, 2, 7, 8]).propose(1) == [2]


def test_the_longest_match_wins_over_the_latest() -> None:
    assert Drafter([1, 2, 3, 4, 100, 3, 4, 200, 1, 2, 3, 4]).propose(1) == [100]


@pytest.mark.parametrize("history", [[], [1], [1, 2], [1, 2, 3, 4], [1, 1], [2, 1, 1]])
def test_new_text_has_no_guesses(history: list[int]) -> None:
    assert Drafter(history).propose(5) == []


def test_ids_are_compared_whole_and_not_by_their_bytes() -> None:
    assert Drafter([1 << 8, 2 << 8, 5, 0, 1, 2]).propose(5) == []


def test_text_taken_back_is_looked_through_too() -> None:
    drafter = Drafter([50, 51, 1, 2], dropped=ROUND)
    assert drafter.propose(5) == [3, 4]


def test_growth_of_the_history_is_seen() -> None:
    history = [*ROUND, 1]
    drafter = Drafter(history)
    assert drafter.propose(5) == []
    history.append(2)
    assert drafter.propose(5) == [3, 4]


def test_good_guesses_bring_more_and_bad_ones_a_pause_that_grows() -> None:
    drafter = Drafter([*ROUND, 1, 2])
    sizes = []
    for _ in range(4):
        sizes.append(len(drafter.propose(100)))
        drafter.learn(sizes[-1], sizes[-1])
    assert sizes == [2, 4, MAX_GUESSES, MAX_GUESSES]
    drafter.learn(7, 0)
    assert [len(drafter.propose(100)) for _ in range(3)] == [0, 1, 1]
    drafter.learn(1, 0)
    assert [len(drafter.propose(100)) for _ in range(5)] == [0, 0, 0, 1, 1]


def test_never_more_than_asked_for() -> None:
    drafter = Drafter([*ROUND, 1, 2])
    assert [len(drafter.propose(most)) for most in (1, 0, -1)] == [1, 0, 0]
