"""What the log of a session says the session is: a pure function of its events.

The state is the tree of entries of session/history.py. An entry keeps the first tokens of its parent's and adds some:

    ids(entry) = ids(parent)[:kept] + added

so a log costs what was said, however often it was taken back, and no list is copied while it is replayed. A token is a
key here, which is its id and the class it is computed in (isa/classes.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from unsay.errors import SessionLogError
from unsay.isa.classes import ids_of, keys_of


class Verb(StrEnum):
    """What happened. The names are in files: one once given is never changed."""

    USER = "user"
    APPEND = "append"
    ANSWER = "answer"
    INTERRUPT = "interrupt"
    ROLLBACK = "rollback"
    REOPEN = "reopen"
    INJECT = "inject"
    FORK = "fork"
    UNDO = "undo"
    REDO = "redo"
    CHECKOUT = "checkout"


PROMPTS = (Verb.USER, Verb.APPEND)
"""What adds tokens outside answers: those of the class of prompts. All others are exact."""


class Event(NamedTuple):
    """One line of a log.

    kept, token_ids: the context is then its first `kept` tokens and these. answer_start, has_turns, finish, stop: as in
    history.Place. number: steps of an undo or redo, the entry of a checkout. An answer may come as many events.
    """

    verb: Verb
    kept: int = 0
    token_ids: tuple[int, ...] = ()
    answer_start: int = 0
    has_turns: bool = False
    finish: str | None = None
    stop: tuple[str, ...] = ()
    number: int = 0


class State(NamedTuple):
    """A session as its log leaves it, its tokens as keys (isa/classes.py).

    entries: the event each was made by and the number of its parent, of which the first has none. redo: the entry that
    redo goes to, from each. growing: the answer since the current entry, not entered yet.
    """

    entries: tuple[tuple[Event, int | None], ...]
    current: int
    redo: dict[int, int]
    growing: Event | None

    @property
    def place(self) -> Event:
        """The event that left the session as it is."""
        return self.growing or self.entries[self.current][0]

    @property
    def token_ids(self) -> list[int]:
        """Every token of the context, without its class."""
        return ids_of([*self.keys_at(self.current), *(self.growing.token_ids if self.growing else ())])

    def keys_at(self, number: int | None) -> list[int]:
        """The key of every token of an entry."""
        parts: list[tuple[int, ...]] = []
        end = self.entries[number][0].kept + len(self.entries[number][0].token_ids) if number is not None else 0
        while number is not None:
            event, number = self.entries[number]
            parts.append(event.token_ids[: max(0, end - event.kept)])
            end = min(end, event.kept)
        return [token_id for part in reversed(parts) for token_id in part]


def replay(events: Iterable[Event], is_fast: bool = False) -> State:
    """The state after these events; is_fast: with prompts in the fast class.

    SessionLogError if one does not follow from those before.
    """
    machine = _Replay()
    for number, event in enumerate(events):
        if is_fast and event.verb in PROMPTS:
            event = event._replace(token_ids=tuple(keys_of(event.token_ids, is_fast)))
        try:
            machine.apply(event)
        except (IndexError, KeyError) as error:
            raise SessionLogError(
                f"event {number} of the log, {event.verb}, does not follow from those before"
            ) from error
    return State(tuple(machine.entries), machine.current, machine.redo, machine.growing())


_WALKS = (Verb.UNDO, Verb.REDO, Verb.CHECKOUT)
_GROWTH = (Verb.ANSWER, Verb.INTERRUPT)


class _Replay:
    """The state while it is made. IndexError or KeyError: an event names what is not there."""

    def __init__(self) -> None:
        self.entries: list[tuple[Event, int | None]] = [(Event(Verb.APPEND), None)]
        self.current = 0
        self.redo: dict[int, int] = {}
        self._last: Event | None = None
        self._sampled: list[int] = []

    def growing(self) -> Event | None:
        """What was sampled since the current entry, as one event."""
        return self._last and self._last._replace(kept=self._length(), token_ids=tuple(self._sampled))

    def apply(self, event: Event) -> None:
        """Do what the event says."""
        if event.verb in _GROWTH:
            self._grow(event)
            return
        self._enter_sampled()
        if event.verb in _WALKS:
            self._walk(event.verb, event.number)
        elif event.verb is Verb.FORK:
            self._start_again()
        else:
            self._add(event)

    def _length(self) -> int:
        event, _ = self.entries[self.current]
        return event.kept + len(event.token_ids)

    def _grow(self, event: Event) -> None:
        if event.kept != self._length() + len(self._sampled):
            raise IndexError(event.kept)
        self._sampled.extend(event.token_ids)
        self._last = event

    def _enter_sampled(self) -> None:
        grown = self.growing()
        self._last = None
        self._sampled = []
        if grown is not None and grown.token_ids:
            self._add(grown._replace(verb=Verb.ANSWER))

    def _add(self, event: Event) -> None:
        if not 0 <= event.kept <= self._length():
            raise IndexError(event.kept)
        self.entries.append((event, self.current))
        self._go_to(len(self.entries) - 1)

    def _walk(self, verb: Verb, number: int) -> None:
        if verb is Verb.CHECKOUT:
            self._go_to(range(len(self.entries))[number])
            return
        for _ in range(number):
            self._go_to(self.redo[self.current] if verb is Verb.REDO else self._parent())

    def _parent(self) -> int:
        _, parent = self.entries[self.current]
        if parent is None:
            raise IndexError(self.current)
        return parent

    def _go_to(self, number: int) -> None:
        _, parent = self.entries[number]
        if parent is not None:
            self.redo[parent] = number
        self.current = number

    def _start_again(self) -> None:
        """A fork has the tokens and the place, and a history of its own."""
        state = State(tuple(self.entries), self.current, {}, None)
        place, _ = self.entries[self.current]
        self.entries = [(place._replace(verb=Verb.FORK, kept=0, token_ids=tuple(state.keys_at(self.current))), None)]
        self.current = 0
        self.redo = {}
