"""What happened in a session, as a tree of entries, and how to get back to any of them.

    1 user ── 2 answer ── 3 rollback ── 4 inject ── 5 answer        undo walks left, redo right again
                    └──── 6 rollback ── 7 answer                    after an undo, a new branch

While a context only grows, all its entries are prefixes of it. So an entry is (kept context, length): before anything
is dropped the context itself is left to its entries, and the session goes on with a fork of it, made when it needs one.
That is what makes rollback and undo O(1), and cheap.
Kept contexts are parked: when the KV pool is full the tree takes their pages and keeps their ids (kv/tree.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from unsay.errors import RequestError
from unsay.vm.context import Context


class Entry(NamedTuple):
    """One line of `Session.history()`. text: what was said, sampled or injected, or what a rollback dropped."""

    number: int
    parent: int | None
    verb: str
    text: str
    num_tokens: int
    is_current: bool = False


class Place(NamedTuple):
    """What a session is at an entry, beside its tokens. stop: the stop strings one of which ended the answer.

    A named tuple, since one is made for every token: a frozen dataclass takes five times as long to make.
    """

    length: int
    answer_start: int
    has_turns: bool
    finish: str | None = None
    stop: tuple[str, ...] = ()


class Node:
    """An entry as kept. kept: the context that holds its tokens, None while that is the session's own.

    Its tokens are those of the context up to place.length; what it added begins where its parent ends. dropped_from: of
    a rollback, the entry before it, whose context has the tokens dropped.
    """

    __slots__ = ("dropped_from", "kept", "number", "parent", "place", "redo", "verb")

    def __init__(
        self,
        number: int,
        parent: Node | None,
        verb: str,
        place: Place,
        kept: Context | None = None,
        dropped_from: Node | None = None,
    ) -> None:
        self.number = number
        self.parent = parent
        self.verb = verb
        self.place = place
        self.kept = kept
        self.redo: Node | None = None
        self.dropped_from = dropped_from


class History:
    """The entries of one session. `current` is where the session stands; growth since then is not entered yet.

    `add`, `drop` and `move_along` end with a row of assignments, and their callers go on with one: no KeyboardInterrupt
    comes between what belongs together (docs/decisions/015).
    """

    __slots__ = ("_growing", "current", "nodes")

    def __init__(self, verb: str, place: Place) -> None:
        self.current = Node(0, None, verb, place)
        self.nodes = [self.current]
        self._growing = [self.current]

    def add(self, verb: str, place: Place) -> None:
        """Enter what the session's context has grown by."""
        node = Node(len(self.nodes), self.current, verb, place)
        self._growing += [node]
        self.nodes += [node]
        self.current.redo = self.current = node

    def drop(self, verb: str, place: Place) -> None:
        """Enter that all after `place` was dropped; `keep` came first."""
        before = self.current
        node = Node(len(self.nodes), before, verb, place, before.kept, before)
        self.nodes += [node]
        before.redo = self.current = node

    def keep(self, context: Context) -> bool:
        """The session is about to leave its context: it is that of all entries made in it. False if there is none."""
        growing = self._growing
        for node in growing:
            node.kept = context
        self._growing = []
        return growing != []

    def keeps(self, context: Context) -> bool:
        """Whether `keep` began with it, and was cut short."""
        return any(node.kept is context for node in self._growing)

    def move_along(self, path: Sequence[Node]) -> None:
        """The session stands at the last node of a path; `keep` came first."""
        for node in path:
            if node.parent is not None:
                node.parent.redo = node
        self.current = path[-1]

    def context_at(self, node: Node, payload: Iterable[int] = (), is_fast: bool = False) -> Context:
        """A context of its own: an entry's tokens, then the payload in its class.

        What the tree gave up is pending in it.
        """
        kept = node.kept
        assert kept is not None, ("keep() comes first", node.number)
        kept.branch.unpark(kept.pending)
        try:
            context = kept.fork()
        finally:
            kept.branch.park()
        context.abort(node.place.length, payload, is_fast)
        return context

    def restore(self, nodes: list[Node], current: int) -> None:
        """Take over the entries of a log, each with its context."""
        self.nodes = nodes
        self.current = nodes[current]
        self._growing = []

    def find(self, number: object) -> Node:
        """The node of this number; RequestError names the valid ones."""
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(self.nodes):
            raise RequestError(f"no history entry {number!r}: there are 0..{len(self.nodes) - 1}, see history()")
        return self.nodes[number]

    def undo(self, node: Node) -> Node:
        """The entry before this one."""
        if node.parent is None:
            raise RequestError("nothing to undo: this is the beginning of the session")
        return node.parent

    def redo(self, node: Node) -> Node:
        """The entry after this one that was current last."""
        if node.redo is None:
            raise RequestError("nothing to redo: nothing was undone from here")
        return node.redo

    def release(self) -> None:
        """Give every kept context back."""
        for node in self.nodes:
            if node.kept is not None:
                node.kept.release()
