"""What happened in a session, as a tree of entries, and how to get back to any of them.

    1 user ── 2 answer ── 3 rollback ── 4 inject ── 5 answer        undo walks left, redo right again
                    └──── 6 rollback ── 7 answer                    after an undo, a new branch

While a context only grows, all its entries are prefixes of it. So an entry is (context, length): before anything is
dropped the context itself is left to its entries, and the session goes on with a fork of it, made when it needs one.
That is what makes rollback and undo O(1), and cheap.
Contexts that were left are parked: when the KV pool is full the tree takes their pages, and keeps their ids
(kv/tree.py).
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

    def at(self, length: int, finish: str | None = None, stop: tuple[str, ...] = ()) -> Place:
        """The same answer at another length. `Place(...)` would be a second function of Python, called from C."""
        return tuple.__new__(Place, (length, self.answer_start, self.has_turns, finish, stop))


class Node:
    """An entry as kept. context: holds its tokens, up to place.length; the session's own, or one that it left.

    What it added begins where its parent ends. dropped_from: of a rollback, the entry before it, whose context has the
    tokens dropped.
    """

    __slots__ = ("context", "dropped_from", "number", "parent", "place", "redo", "verb")

    def __init__(
        self,
        number: int,
        parent: Node | None,
        verb: str,
        place: Place,
        context: Context,
        dropped_from: Node | None = None,
    ) -> None:
        self.number = number
        self.parent = parent
        self.verb = verb
        self.place = place
        self.context = context
        self.redo: Node | None = None
        self.dropped_from = dropped_from


class History:
    """The entries of one session. `current` is where the session stands; what came since then is not entered yet.

    `add`, `drop` and `move_along` end with a row of assignments, and their callers go on with one: no KeyboardInterrupt
    comes between what belongs together (docs/decisions/015).
    """

    __slots__ = ("current", "nodes")

    def __init__(self, nodes: list[Node], current: int = 0) -> None:
        self.nodes = nodes
        self.current = nodes[current]

    def add(self, verb: str, place: Place, context: Context) -> None:
        """Enter what the session's context has grown by."""
        node = Node(len(self.nodes), self.current, verb, place, context)
        self.nodes += [node]
        self.current.redo = self.current = node

    def drop(self, verb: str, place: Place) -> None:
        """Enter that all after `place` was dropped; the session has left its context."""
        before = self.current
        node = Node(len(self.nodes), before, verb, place, before.context, before)
        self.nodes += [node]
        before.redo = self.current = node

    def move_along(self, path: Sequence[Node]) -> None:
        """The session stands at the last node of a path, and has left its context."""
        for node in path:
            if node.parent is not None:
                node.parent.redo = node
        self.current = path[-1]

    def context_at(self, node: Node, payload: Iterable[int] = (), is_fast: bool = False) -> Context:
        """A context of its own: an entry's tokens, then the payload in its class. The session has left the entry's.

        What the tree gave up is pending in it.
        """
        kept = node.context
        kept.branch.unpark(kept.pending)
        try:
            context = kept.fork()
        finally:
            kept.branch.park()
        context.abort(node.place.length, payload, is_fast)
        return context

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
        """Give every context back."""
        for context in dict.fromkeys(node.context for node in self.nodes):
            context.release()
