"""What a session writes into its log, and how it is made again from there.

A verb is on the disk before it changes anything. Tokens of an answer follow a page (16) at a time and when the answer
pauses: what a crash can lose of them, the seed makes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from unsay.core import PAGE_TOKENS, SamplingParams
from unsay.errors import SessionLogError
from unsay.isa.classes import EXACT, FAST, PREFILLS
from unsay.kv.tree import KvTree
from unsay.session.history import History, Node, Place
from unsay.session.replay import Event, State, Verb, replay
from unsay.vm.context import Context

if TYPE_CHECKING:
    from unsay.session.log import SessionLog


class Journal:
    """One session's place in a log. num_events: how many the session has there. settings: what it was made with."""

    def __init__(self, log: SessionLog, session: str, num_events: int, settings: dict[str, Any]) -> None:
        self.session = session
        self._settings = settings
        self._log = log
        self._num_events = num_events
        self._length = 0
        self._entered: int | None = None

    @classmethod
    def begin(cls, log: SessionLog, settings: dict[str, Any]) -> Journal:
        """A new session in the log."""
        return cls(log, log.create(settings), 0, settings)

    def fork(self, length: int) -> Journal:
        """A new session that starts where this one is."""
        child = Journal(self._log, self._log.fork(self.session, self._settings), 0, self._settings)
        child._length = length
        return child

    def verb(self, verb: Verb, kept: int, ids: Sequence[int], place: Place) -> None:
        """The context becomes its first `kept` tokens and `ids`."""
        self._write(_event(verb, kept, ids, place))
        self._length = kept + len(ids)
        self._entered = None

    def walk(self, verb: Verb, number: int, place: Place) -> None:
        """An undo or redo of `number` steps, or a checkout of that entry, to `place`."""
        self._write(Event(verb, number=number))
        self._length = place.length
        self._entered = None

    def entered(self, number: int) -> None:
        """The answer so far is this entry; said in the log only if the answer goes on before another verb."""
        self._entered = number

    def answer(self, ids: Sequence[int], place: Place, verb: Verb = Verb.ANSWER) -> None:
        """The answer has grown to `place`. ids: every token of the context."""
        if place.length > self._length or verb is Verb.INTERRUPT:
            if self._entered is not None:
                self._write(Event(Verb.CHECKOUT, number=self._entered))
                self._entered = None
            self._write(_event(verb, self._length, ids[self._length : place.length], place))
            self._length = place.length

    def is_behind(self, place: Place) -> bool:
        """Whether a page of tokens is not in the log yet."""
        return place.length - self._length >= PAGE_TOKENS

    def resume(self, place: Place) -> None:
        """The log has everything up to `place`."""
        self._length = place.length

    def _write(self, event: Event) -> None:
        self._num_events = self._log.append(self.session, [event], self._num_events)


def settings_of(system: str | None, params: SamplingParams, is_fast: bool) -> dict[str, Any]:
    """What a session is made with, as the log keeps it."""
    return {"system": system, "params": params._asdict(), "prefill": FAST if is_fast else EXACT}


def read_settings(settings: dict[str, Any]) -> tuple[str | None, SamplingParams, bool]:
    """The system message, the parameters, and whether prompts are of the fast class, of a session of the log.

    Logs of before there were classes do not name one: all they hold was computed exactly. Raises SessionLogError for a
    class nobody knows here.
    """
    prefill = settings.get("prefill", EXACT)
    if prefill not in PREFILLS:
        raise SessionLogError(
            f"this session's prompts are of the class {prefill!r}, this unsay has {', '.join(PREFILLS)}: use the unsay "
            "it is of"
        )
    fields = dict(settings["params"])
    given: dict[str, float] | None = fields["logit_bias"]
    fields["logit_bias"] = given and {int(token_id): bias for token_id, bias in given.items()}
    fields["stop"] = tuple(fields["stop"])
    return settings["system"], SamplingParams(**fields), prefill == FAST


def restore_history(tree: KvTree, state: State) -> tuple[History, Context, Place]:
    """The history a log describes, a context with every token pending, and where the session stands."""
    history = History(_nodes(tree, state), state.current)
    context = history.context_at(history.current)
    if state.growing is not None:
        context.append(state.growing.token_ids)
        return history, context, _place(state.growing)
    return history, context, history.current.place


class Saved(NamedTuple):
    """A session of a log: how it was made, what it is, and the journal that goes on with it."""

    system: str | None
    params: SamplingParams
    is_fast: bool
    state: State
    journal: Journal


def load_session(log: SessionLog, session: str) -> Saved:
    """Read a session; RequestError if the log has none of this id, SessionLogError if it cannot be replayed."""
    events = log.events(session)
    (logged,) = (logged for logged in log.sessions() if logged.id == session)
    system, params, is_fast = read_settings(logged.settings)
    journal = Journal(log, session, logged.num_events, logged.settings)
    return Saved(system, params, is_fast, replay(events, is_fast), journal)


def _nodes(tree: KvTree, state: State) -> list[Node]:
    nodes: list[Node] = []
    contexts = _contexts(tree, state)
    for number, (event, before) in enumerate(state.entries):
        verb = event.verb.value if number or event.verb is Verb.FORK else "start"
        parent = None if before is None else nodes[before]
        dropped_from = parent if event.verb in (Verb.ROLLBACK, Verb.REOPEN) else None
        nodes.append(Node(number, parent, verb, _place(event), contexts[number], dropped_from))
    for number, following in state.redo.items():
        nodes[number].redo = nodes[following]
    return nodes


def _contexts(tree: KvTree, state: State) -> dict[int, Context]:
    """By entry. One that a later entry only adds to is a prefix of that one's tokens, and shares its context."""
    contexts: dict[int, Context] = {}
    for number, (event, before) in reversed([*enumerate(state.entries)]):
        if number not in contexts:
            contexts[number] = Context(tree.root(), pending=state.keys_at(number))
            contexts[number].branch.park()
        if before is not None and event.kept >= _place(state.entries[before][0]).length:
            contexts.setdefault(before, contexts[number])
    return contexts


def _event(verb: Verb, kept: int, ids: Sequence[int], place: Place) -> Event:
    return Event(verb, kept, tuple(ids), place.answer_start, place.has_turns, place.finish, place.stop)


def _place(event: Event) -> Place:
    length = event.kept + len(event.token_ids)
    return Place(length, event.answer_start, event.has_turns, event.finish, event.stop)
