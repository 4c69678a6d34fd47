"""Replay of a log: the same state as a naive model after any events, for work that is linear in them."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.work import num_lines
from unsay.errors import SessionLogError
from unsay.session.replay import Event, Verb, replay

operations = st.lists(
    st.tuples(
        st.sampled_from(["inject", "answer", "rollback", "undo", "redo", "checkout", "fork"]), st.integers(0, 50)
    ),
    max_size=40,
)


class Naive:
    """Whole lists of ids, one for each entry."""

    def __init__(self) -> None:
        self.entries: list[tuple[list[int], int | None]] = [([], None)]
        self.redo: dict[int, int] = {}
        self.current = 0
        self.ids: list[int] = []

    def enter(self) -> None:
        if self.ids != self.entries[self.current][0]:
            self.add(self.ids)

    def add(self, ids: list[int]) -> None:
        self.entries.append((list(ids), self.current))
        self.go_to(len(self.entries) - 1)

    def go_to(self, number: int) -> None:
        self.ids, parent = list(self.entries[number][0]), self.entries[number][1]
        if parent is not None:
            self.redo[parent] = number
        self.current = number

    def apply(self, verb: str, number: int) -> Event | None:
        """Do it if it can be done; the event that logs it."""
        kept = len(self.ids)
        if verb == "answer":
            self.ids.append(number)
            return Event(Verb.ANSWER, kept=kept, token_ids=(number,))
        if not self.is_possible(verb):
            return None
        self.enter()
        if verb == "inject":
            self.add([*self.ids, number, number])
            return Event(Verb.INJECT, kept=kept, token_ids=(number, number))
        if verb == "rollback":
            kept = number % (kept + 1)
            self.add(self.ids[:kept])
            return Event(Verb.ROLLBACK, kept=kept)
        if verb == "fork":
            self.entries, self.redo, self.current = [(list(self.ids), None)], {}, 0
            return Event(Verb.FORK)
        return self._walk(verb, number)

    def is_possible(self, verb: str) -> bool:
        """There is something to undo or redo."""
        has_grown = self.ids != self.entries[self.current][0]
        if verb == "redo":
            return not has_grown and self.current in self.redo
        return verb != "undo" or has_grown or self.entries[self.current][1] is not None

    def _walk(self, verb: str, number: int) -> Event:
        if verb == "checkout":
            self.go_to(number % len(self.entries))
            return Event(Verb.CHECKOUT, number=self.current)
        target = self.redo[self.current] if verb == "redo" else self.entries[self.current][1]
        assert target is not None
        self.go_to(target)
        return Event(Verb(verb), number=1)


@settings(max_examples=200)
@given(operations)
def test_replay_equals_a_naive_model(sequence: list[tuple[str, int]]) -> None:
    naive = Naive()
    events: list[Event] = []
    for verb, number in sequence:
        event = naive.apply(verb, number)
        if event is not None:
            events.append(event)
    state = replay(events)
    assert state.token_ids == naive.ids
    assert state == replay(iter(events))
    for number in range(len(state.entries)):
        assert state.keys_at(number) == naive.entries[number][0]


def test_the_place_of_the_answer_comes_back() -> None:
    said = Event(Verb.USER, token_ids=(1, 2), answer_start=2, has_turns=True)
    answered = Event(Verb.ANSWER, kept=2, token_ids=(3,), answer_start=2, has_turns=True, finish="stop", stop=("x",))
    state = replay([said, answered])
    assert state.place == answered
    undone = replay([said, answered, Event(Verb.UNDO, number=1)])
    assert undone.place == said
    assert replay([said, answered, Event(Verb.UNDO, number=1), Event(Verb.REDO, number=1)]).place == answered


def test_an_interrupt_ends_the_answer_where_it_was() -> None:
    said = Event(Verb.APPEND, token_ids=(1,), answer_start=1)
    stopped = Event(Verb.INTERRUPT, kept=2, answer_start=1, finish="interrupt")
    state = replay([said, Event(Verb.ANSWER, kept=1, token_ids=(5,), answer_start=1), stopped])
    assert state.place.finish == "interrupt"
    assert state.token_ids == [1, 5]


@pytest.mark.parametrize(
    "event",
    [
        Event(Verb.UNDO, number=2),
        Event(Verb.REDO, number=1),
        Event(Verb.CHECKOUT, number=2),
        Event(Verb.ROLLBACK, kept=4),
        Event(Verb.ROLLBACK, kept=-1),
        Event(Verb.ANSWER, kept=2, token_ids=(1,)),
    ],
)
def test_an_event_that_does_not_follow_is_refused(event: Event) -> None:
    with pytest.raises(SessionLogError, match="event 1 of the log"):
        replay([Event(Verb.APPEND, token_ids=(1, 2, 3)), event])


def test_replay_is_linear_in_the_events() -> None:
    short, long = (num_lines(partial(_replay, num_events)) for num_events in (300, 3000))
    assert long < 11 * short, (short, long)


def _replay(num_events: int) -> None:
    events = [Event(Verb.ANSWER, kept=number, token_ids=(1,)) for number in range(num_events)]
    events += [Event(Verb.ROLLBACK, kept=num_events - 1), Event(Verb.UNDO, number=1)] * (num_events // 10)
    assert len(replay(events).token_ids) == num_events
