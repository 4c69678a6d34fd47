"""Where a session stands: its context, the ids in it, the place, the entries and the log, kept in step.

    0         answer_start           length        length of the list of ids
    |-- turns -----|---- answer --------|-- behind ---|
                                          run ahead, made and not delivered yet: `settle` cuts it, and it is made
                                          again exactly; or taken back

A rollback or an undo moves the place and touches no token: the context stays with the entries it holds, and the session
gets another, made from the entry it stands at, when it next needs one. Then the list loses what was taken back.
Of a rollback even the entry is made by the next verb, or look at the history (docs/decisions/017).
What is written to the log is written before anything here changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from unsay.errors import RequestError
from unsay.kv.tree import KvTree
from unsay.session.history import Entry, History, Node, Place
from unsay.session.journal import Journal, Saved, restore_history
from unsay.session.replay import PROMPTS, Verb
from unsay.session.tokenizer import Tokenizer
from unsay.vm.context import Context


class Timeline:
    """Not thread-safe; the session's lock guards it. `ids` may be longer than the place says.

    is_fast: whether prompts are of the fast class. _dropped_from: where a rollback to `place` came from that is not
    entered yet: the context and the list are as they were there. dropped: ids that were taken back before the session
    last went on, where they were known; guesses for what comes instead.
    """

    __slots__ = (
        "_context", "_dropped_from", "_ids", "_is_fast", "_journal", "dropped", "history", "is_logged", "is_open",
        "place",
    )  # fmt: skip

    def __init__(
        self, context: Context, place: Place, history: History, journal: Journal | None, is_fast: bool
    ) -> None:
        self.place = place
        self.history = history
        self.dropped: list[int] = []
        self.is_logged = journal is not None
        self._journal = journal
        self._is_fast = is_fast
        self._context: Context | None = context
        self._dropped_from: Place | None = None
        self._ids: list[int] | None = None
        self.is_open = True

    @classmethod
    def begin(cls, context: Context, journal: Journal | None, is_fast: bool) -> Timeline:
        """Nothing said yet."""
        place = Place(length=0, answer_start=0, has_turns=False)
        return cls(context, place, History([Node(0, None, "start", place, context)]), journal, is_fast)

    @classmethod
    def restored(cls, tree: KvTree, saved: Saved) -> Timeline:
        """As the log left it; every token is pending, and computed again when it is needed."""
        history, context, place = restore_history(tree, saved.state)
        saved.journal.resume(place)
        return cls(context, place, history, saved.journal, saved.is_fast)

    def fork(self) -> Timeline:
        """The same place in a context and a history of its own. What runs ahead goes along, and each drops it."""
        self.enter()
        place, context = self.place, self.context.fork()
        journal = self._journal and self._journal.fork(place.length)
        return Timeline(context, place, History([Node(0, None, "fork", place, context)]), journal, self._is_fast)

    @property
    def context(self) -> Context:
        """The session's own, made from the entry where it stands if need be."""
        if self._context is None:
            self._context = self._at_entry()
        return self._context

    def settle(self) -> None:
        """A rollback is entered, and the context ends at what was delivered."""
        if self._dropped_from is not None:
            self.enter()
        context, length = self._context, self.place.length
        if context is not None and context.length > length:
            del self.ids[length:]
            context.abort(length)

    def exchange(self, context: Context, fork: Context) -> None:
        """Let the session's context have what its fork has, where the tokens are still the same.

        What a context held when it was settled it holds as long as it is the session's and as long: verbs that take
        back leave it.
        """
        if self._context is context and context.length == fork.length:
            context.exchange(fork)

    @property
    def ids(self) -> list[int]:
        """Ids of the context, made from it after a fork or an undo; the engine's list while it runs. RequestError if
        there was no such list when the session was closed."""
        if self._ids is None:
            if not self.is_open:
                raise RequestError(
                    "this session is closed, and after its last fork or undo nobody asked for its tokens: "
                    "read token_ids or answer before close()"
                )
            context = self._context
            self._ids = self.ids_at(self.history.current) if context is None else context.token_ids()
        return self._ids

    @property
    def token_ids(self) -> list[int]:
        """Every token delivered."""
        return self.ids[: self.place.length]

    @property
    def answer_ids(self) -> list[int]:
        """Every token of the answer delivered."""
        return self.ids[self.place.answer_start : self.place.length]

    def grow(self, verb: Verb, ids: list[int], opens_answer: bool, has_turns: bool) -> None:
        """Put ids behind the place, as an entry. The context of an entry has the keys and values of all it kept."""
        self.enter()
        length = self.place.length + len(ids)
        place = Place(length, length if opens_answer else self.place.answer_start, has_turns)
        if self._journal is not None:
            self._journal.verb(verb, self.place.length, ids, place)
        own, is_fast = self.ids, self._is_fast and verb in PROMPTS
        if self.history.current.context is not self._context:
            self._leave()
            self._context = self._at_entry(ids, is_fast)
        else:
            self.context.append(ids, is_fast)
        own += ids  # cut short before the end, the context is longer than the place says: `settle` sees to it
        self.history.add(verb, place, self.context)
        self.place = place

    def grown(self, finish: str | None, stop: tuple[str, ...]) -> Place:
        """The place where one more token of the engine's list is part of the answer."""
        return self.place.at(self.place.length + 1, finish, stop)

    @property
    def is_behind(self) -> bool:
        """Whether a page of tokens is not in the log yet."""
        return self._journal is not None and self._journal.is_behind(self.place)

    def rollback(self, target: int) -> int:
        """Keep `target` tokens; returns how many were dropped. A mark: all but the log waits for `enter`."""
        before = self.place
        place = before.at(target)
        if self._journal is not None:
            self.enter()
            self._journal.verb(Verb.ROLLBACK, target, (), place)
        elif self._dropped_from is not None:
            self.enter()
        self._dropped_from, self.place = before, place
        return before.length - target

    def take_end(self) -> None:
        """The answer may go on: the token that said its end is taken back. It is no guess at what comes instead."""
        self.enter()
        place = self.place.at(self.place.length - 1)
        if self._journal is not None:
            self._journal.verb(Verb.REOPEN, place.length, (), place)
        self._leave()
        self.history.drop(Verb.REOPEN, place)
        self.place = place
        del self.ids[place.length :]

    def open_answer(self) -> None:
        """The answer may go on."""
        self._set_finish(None)

    def stop(self) -> None:
        """The answer was stopped; one that had ended keeps its reason."""
        if self.place.finish is None:
            self._set_finish("interrupt")

    def go_to(self, path: list[Node], verb: Verb, number: int) -> None:
        """Leave the context for that of the last entry of a path."""
        node = path[-1]
        if self._journal is not None:
            self._journal.walk(verb, number, node.place)
        self._leave()
        self.history.move_along(path)
        self.place, self._ids = node.place, None

    def enter(self) -> None:
        """Enter what came since the last entry: what was delivered, then a rollback."""
        journal = self._journal
        place = self._dropped_from or self.place
        if place.length != self.history.current.place.length:
            if journal is not None:
                journal.answer(self.ids, place)
            self.history.add(Verb.ANSWER, place, self.context)
            if journal is not None:
                journal.entered(self.history.current.number)
        if self._dropped_from is not None:
            self._leave()
            self.history.drop(Verb.ROLLBACK, self.place)
            self._dropped_from = None

    def log_answer(self, verb: Verb = Verb.ANSWER) -> None:
        """Bring the log up to the place."""
        if self._journal is not None:
            self._journal.answer(self.ids, self.place, verb)

    def ids_at(self, node: Node) -> list[int]:
        """Every token of an entry."""
        ids = self.ids if node.context is self._context else node.context.token_ids()
        return ids[: node.place.length]

    def entries(self, tokenizer: Tokenizer) -> list[Entry]:
        """The entries, for people to read."""
        return [self._entry_of(node, tokenizer) for node in self.history.nodes]

    def check_open(self) -> None:
        """RequestError after `release`."""
        if not self.is_open:
            raise RequestError("this session is closed: make another with model.session()")

    def check_not_empty(self) -> None:
        """RequestError where there is no token: also where a loop took all back that there was."""
        if self.place.length == 0:
            raise RequestError("the context is empty, there is nothing to continue: call user() or append() first")

    def release(self) -> None:
        """Give everything back but a list of ids that there is; to make one would cost O(n). Idempotent."""
        self.is_open = False
        if self._context is not None:
            self._context.release()
            self._context = None
        self.history.release()

    def _entry_of(self, node: Node, tokenizer: Tokenizer) -> Entry:
        parent = None if node.parent is None else node.parent.number
        if node.dropped_from is not None:
            ids = self.ids_at(node.dropped_from)[node.place.length :]
        else:
            ids = self.ids_at(node)[node.place.length if node.parent is None else node.parent.place.length :]
        is_current = node is self.history.current
        return Entry(node.number, parent, str(node.verb), tokenizer.decode(ids), node.place.length, is_current)

    def _set_finish(self, finish: str | None) -> None:
        if self._dropped_from is not None:
            self.enter()
        self.place = self.place.at(self.place.length, finish)

    def _leave(self) -> None:
        """Leave the context to the entries made in it, the last ones, if there are any."""
        context, self._context = self._context, None
        if context is not None:
            if self.history.nodes[-1].context is context:
                context.branch.park()
            else:
                context.release()

    def _at_entry(self, payload: Iterable[int] = (), is_fast: bool = False) -> Context:
        """A context with the tokens of the current entry, then the payload. The list loses what was taken back."""
        ids, length = self._ids, self.place.length
        if ids is not None and len(ids) > length:
            self.dropped = ids[length:]
            del ids[length:]
        return self.history.context_at(self.history.current, payload, is_fast)
