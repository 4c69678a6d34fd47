"""A branch of the KV tree: fork, truncate, reserve and commit. The invariants it keeps open kv/tree.py."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from unsay.core import PAGE_TOKENS
from unsay.errors import PositionError
from unsay.kv.mend import mend
from unsay.kv.node import NO_PAGE, Node, ancestor, num_pages, path_up

if TYPE_CHECKING:
    from unsay.kv.tree import KvTree


class State(Enum):
    """What a branch is to its owner and to the tree."""

    LIVE = "in use"
    PARKED = "not needed now; its pages may be taken"
    DROPPED = "parked, and its pages were taken"
    RELEASED = "given back"


LIVE, PARKED, DROPPED, RELEASED = State
"""By name: Python 3.11 takes 0.2 us to find `State.LIVE`, and a rollback would do so three times."""


_NOWHERE = Node(("", b""), NO_PAGE)
"""The tip of a branch that is being made."""


class Branch:
    """A sequence of tokens whose keys and values are in the tree. Made by `KvTree.root`, `match` and `fork`.

    length: committed tokens whose rows are here. tip: the node of the last of them. num_reserved: rows open for writing
    from `length` on. reserved: the pages taken for them; if `is_copying` the first is a copy of the tip.
    """

    __slots__ = (
        "__weakref__", "_table", "_table_is_shared", "is_copying", "length", "lost_ids", "num_reserved", "parked_at",
        "reserved", "state", "tip", "tree",
    )  # fmt: skip

    def __init__(self, tree: KvTree, tip: Node, length: int) -> None:
        self.tree = tree
        self.state = RELEASED
        self.num_reserved = 0
        self.reserved: list[int] = []
        self.is_copying = False
        self.parked_at = 0
        self.lost_ids: tuple[int, ...] = ()
        self._table: array[int] | None = None
        self._table_is_shared = False
        self.tip, self.length = _NOWHERE, 0
        tree.branches.add(self)
        tip.refs += 1
        self.tip, self.length, self.state = tip, length, LIVE

    def __del__(self) -> None:
        try:
            if self.state is LIVE or self.state is PARKED:
                self.state = RELEASED
                self.tree.abandoned.append((self.tip, self.reserved))
        except AttributeError:  # a KeyboardInterrupt came before __init__ began
            pass

    @property
    def holds_nodes(self) -> bool:
        """Whether the branch counts among the holders of its tip."""
        return self.state in (LIVE, PARKED)

    def token_ids(self) -> list[int]:
        """Every token of the branch, also of a dropped one; O(n)."""
        with self.tree.lock:
            return list(self.lost_ids) or self._path_ids()

    def token_at(self, position: int) -> int:
        """The token at `position`, 0..length-1; O(log n)."""
        assert 0 <= position < self.length, (position, self.length)
        node = ancestor(self.tip, position // PAGE_TOKENS + 1)
        return node.tokens[position - node.start]

    def fork(self) -> Branch:
        """A second branch with the same tokens; O(1)."""
        tree = self.tree
        with tree.lock:
            self._close_reservation()
            child = Branch(tree, self.tip, self.length)
            child._table, child._table_is_shared, self._table_is_shared = self._table, True, True
            return child

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens, found in O(log n). PositionError unless it is an integer in 0..length."""
        if type(length) is not int or not 0 <= length <= self.length:
            raise PositionError(length, (0, self.length), "length")
        tree = self.tree
        with tree.lock:
            if tree.num_begun != tree.num_ended:
                mend(tree)
            self._close_reservation()
            old, tip = self.tip, ancestor(self.tip, num_pages(length))
            tree.num_begun += 1
            tip.refs += 1
            self.tip, self.length = tip, length
            tree.unhold(old)
            tree.num_ended += 1

    def reserve(self, num_tokens: int) -> None:
        """Open rows length..length+num_tokens for writing, in place of an earlier reservation that was not committed.

        Copies the tip if the rows begin in it and it has other holders. Raises OutOfPagesError and changes nothing when
        the pool is full. Fork, truncate, park and release close a reservation; nothing tells that it was there.
        """
        assert num_tokens >= 0, num_tokens
        tree = self.tree
        with tree.lock:
            tree.collect()
            self._close_reservation()
            in_tip = self.length % PAGE_TOKENS != 0 and num_tokens > 0
            is_copying = in_tip and self.tip.refs > 1
            count = num_pages(self.length + num_tokens) - num_pages(self.length) + is_copying
            if count:
                tree.make_room(count)
            tree.num_begun += 1
            pages = tree.take_pages(count) if count else []
            if is_copying:
                tree.pool.copy(self.tip.page, pages[0])
            elif in_tip and len(self.tip.tokens) > self.length % PAGE_TOKENS:
                self._cut_tip()
            if pages:
                self._write_table(self.tip.depth - is_copying, pages)
            self.reserved, self.is_copying, self.num_reserved = pages, is_copying, num_tokens
            tree.num_ended += 1

    def commit(self, token_ids: Sequence[int], pending: list[int] | None = None) -> None:
        """The first reserved rows now hold these tokens; what else was reserved is closed.

        pending: a list that begins with the tokens, which leave it together with their coming in here.
        """
        assert len(token_ids) <= self.num_reserved, (len(token_ids), self.num_reserved)
        ids = tuple(map(int, token_ids))
        pending, tree = list(ids) if pending is None else pending, self.tree
        with tree.lock:
            tree.num_begun += 1
            if self.is_copying and ids:
                self._adopt_copy()
            while ids:
                num_taken = PAGE_TOKENS - self.length % PAGE_TOKENS
                self._fill(ids[:num_taken], pending)
                ids = ids[num_taken:]
            self._close_reservation()
            tree.num_ended += 1
        tree.trim(max_pages=1)

    def page_table(self) -> array[int]:
        """int32 [pages]: the pages of rows 0..length+reserved. A copy."""
        with self.tree.lock:
            return self.peek_table()

    def peek_table(self) -> array[int]:
        """The same for `check`, which holds the lock."""
        return self._full_table()[: num_pages(self.length + self.num_reserved)]

    def park(self) -> None:
        """Nobody needs this branch now: when the pool is full its pages may be taken, never its ids."""
        if self.state is LIVE:
            if self.num_reserved:
                with self.tree.lock:
                    self._free_reservation()
            self.parked_at = next(self.tree.clock)
            self.state = PARKED  # last, and without the lock: from here on others may look at the branch

    def unpark(self, pending: list[int]) -> None:
        """Make the branch usable again. Ids after `length`, whose rows must be computed again, go before `pending`."""
        with self.tree.lock:
            assert self.state is not RELEASED
            if self.state is DROPPED:
                tip, length = self.tree.longest_prefix(self.tip.origin, self.lost_ids)
                tip.refs += 1
                pending[:0] = self.lost_ids[length:]
                self.tip, self.length, self.lost_ids, self.state = tip, length, (), LIVE
            self.state = LIVE

    def release(self) -> None:
        """Let go of everything; idempotent. Memory goes back to the system when nobody else holds it."""
        with self.tree.lock:
            if self.holds_nodes:
                if self.tree.num_begun != self.tree.num_ended:
                    mend(self.tree)
                self._let_go(RELEASED)
            self.state, self.lost_ids = RELEASED, ()
        self.tree.trim()

    def drop(self) -> None:
        """Give up the pages of a parked branch, keep its ids. The lock is held."""
        assert self.state is PARKED, self.state
        self._let_go(DROPPED, tuple(self._path_ids()))

    def rebuild_table(self) -> None:
        """From the path and what is reserved, for `mend`, which holds the lock."""
        pages = [node.page for node in path_up(self.tip)][::-1]
        kept = pages[: len(pages) - self.is_copying]
        self._table, self._table_is_shared = array("i", kept + self.reserved), False

    def _let_go(self, state: State, lost_ids: tuple[int, ...] = ()) -> None:
        """Stop holding the tip; a root that is in no tree takes its place."""
        tree, old, root = self.tree, self.tip, Node(self.tip.origin, NO_PAGE)
        self._free_reservation()
        tree.num_begun += 1
        self.tip, self.length, self._table, self.state, self.lost_ids = root, 0, None, state, lost_ids
        tree.unhold(old)
        tree.num_ended += 1

    def _path_ids(self) -> list[int]:
        pages = [node.tokens for node in path_up(self.tip)]
        return list(itertools.chain.from_iterable(reversed(pages)))[: self.length]

    def _cut_tip(self) -> None:
        """Forget the tokens beyond `length` in a tip that is ours alone and about to be written."""
        if self.tip.is_full:
            self.tip.unregister()
        self.tip.tokens = self.tip.tokens[: self.length - self.tip.start]

    def _adopt_copy(self) -> None:
        """The copy of the tip becomes a node of its own beside it."""
        shared, page = self.tip, self.reserved[0]
        copy = Node(shared.origin, page, shared.parent, shared.tokens[: self.length - shared.start])
        copy.refs = 1
        self.tip, self.reserved, self.is_copying = copy, self.reserved[1:], False
        copy.parent.refs += 1
        self.tree.unhold(shared)

    def _fill(self, ids: tuple[int, ...], pending: list[int]) -> None:
        """Tokens for the next rows of the tip, or of a new one, which takes our reference to the old one over. A full
        page is registered, or given up for one with the same ids and bytes."""
        is_new, num_ids = self.length % PAGE_TOKENS == 0, len(ids)
        tip = Node(self.tip.origin, self.reserved[0], self.tip) if is_new else self.tip
        tokens = tip.tokens + ids
        is_full = len(tokens) == PAGE_TOKENS
        twin = tip.parent.child(tokens) if is_full else None
        if is_new:
            self.reserved = self.reserved[1:]
        if twin is None:
            tip.tokens, tip.refs = tokens, 1
        else:
            twin.refs += 1
        self.tip = tip if twin is None else twin
        self.length += num_ids
        self.num_reserved -= num_ids
        del pending[:num_ids]
        if twin is not None:
            tip.parent.refs -= 1
            self.tree.pool.free(tip.page)
            self._write_table(twin.depth - 1, [twin.page])
        elif is_full:
            tip.register()

    def _close_reservation(self) -> None:
        assert self.state is LIVE, f"the branch is {self.state.value}"
        if self.num_reserved:
            self._free_reservation()

    def _free_reservation(self) -> None:
        """Give back what was reserved and not committed; a copy's place in the table is the tip's again."""
        tree, pages, was_copying = self.tree, self.reserved, self.is_copying
        tree.num_begun += 1
        self.reserved, self.num_reserved, self.is_copying = [], 0, False
        tree.free_pages(pages)
        if was_copying:
            self._write_table(self.tip.depth - 1, [self.tip.page])
        tree.num_ended += 1

    def _write_table(self, start: int, pages: list[int]) -> None:
        """Set table entries from `start` on, in an array no other branch reads."""
        table = self._full_table()
        end = start + len(pages)
        if self._table_is_shared or end > len(table):
            room = max(len(table), end + end // 2) - start
            table = table[:start] + array("i", bytes(4 * room))
            self._table = table
            self._table_is_shared = False
        table[start:end] = array("i", pages)

    def _full_table(self) -> array[int]:
        """The table, at least as long as the path; made from the path the first time."""
        if self._table is None:
            pages = [node.page for node in path_up(self.tip)]
            self._table = array("i", reversed(pages))
            self._table_is_shared = False
        return self._table
