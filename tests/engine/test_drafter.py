"""Guesses: what followed the same tokens the last time, more the more of them stood there."""

from __future__ import annotations

import pytest

from unsay.engine.drafter import MAX_GUESSES, Drafter

ROUND = [300, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_what_followed_the_last_time_is_guessed_again() -> None:
    assert Drafter([*ROUND, 1, 2, 3]).propose(5) == [4, 5, 6]
    assert Drafter([7, 8, 1, 7, 8, 2, 7, 8]).propose(1) == [2]


def test_the_longest_match_wins_over_the_latest() -> None:
    assert Drafter([1, 2, 3, 4, 100, 3, 4, 200, 1, 2, 3, 4]).propose(1) == [100]


@pytest.mark.parametrize("history", [[], [1], [1, 2], [1, 2, 3, 4], [2, 1, 3, 1, 4, 1]])
def test_new_text_has_no_guesses(history: list[int]) -> None:
    assert Drafter(history).propose(5) == []


def test_ids_are_compared_whole_and_not_by_their_bytes() -> None:
    assert Drafter([1 << 8, 2 << 8, 5, 0, 1, 2]).propose(5) == []


def test_text_taken_back_is_looked_through_too() -> None:
    drafter = Drafter([50, 51, 1, 2], dropped=ROUND)
    assert drafter.propose(5) == [3]


def test_growth_of_the_history_is_seen() -> None:
    history = [*ROUND, 1]
    drafter = Drafter(history)
    assert drafter.propose(5) == [2]
    history += [2, 3]
    assert drafter.propose(5) == [4, 5, 6]


@pytest.mark.parametrize(("matched", "count"), [(2, 1), (3, 3), (4, 5), (5, MAX_GUESSES), (6, MAX_GUESSES)])
def test_a_longer_match_brings_more_guesses(matched: int, count: int) -> None:
    text = list(range(20))
    assert Drafter([*text, 99, *text[:matched]]).propose(100) == text[matched : matched + count]


def test_a_token_alone_is_guessed_from_where_it_always_had_the_same_follower() -> None:
    assert Drafter([1, 2, 3, 1, 2, 4, 1]).propose(5) == [2]
    assert Drafter([1, 2, 3, 1, 5, 4, 1]).propose(5) == []


def test_many_wrong_guesses_in_a_row_bring_a_pause() -> None:
    drafter = Drafter([*ROUND, 1, 2])

    def sizes(count: int, num_right: int) -> list[int]:
        found = []
        for _ in range(count):
            found.append(len(drafter.propose(100)))
            if found[-1]:
                drafter.learn(num_right)
        return found

    assert sizes(7, 0) + sizes(1, 1) + sizes(8, 0) == [1] * 16
    assert sizes(17, 1) == [0] * 16 + [1]


def test_never_more_than_asked_for() -> None:
    drafter = Drafter([*ROUND, 1, 2])
    assert [len(drafter.propose(most)) for most in (1, 0, -1)] == [1, 0, 0]
