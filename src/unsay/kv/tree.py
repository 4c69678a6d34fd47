"""The KV tree: branches that share pages and copy on write. Fork and rollback copy nothing.

A branch is (tip node, length); a node is a page of 16 tokens; nodes point to their parents, never the other way but
for the lookup of full pages. One root for each (adapter, salt).

    root <- [16 ids] <- [16 ids] <- [5 ids . . .]        tip of A, length 37
                          ^-------- [16 ids]             tip of B, length 44: B reads 12 of the tip's 16 rows

    reserve(n)    rows length..length+n may be written: in the tip if no one else holds it, else in a copy; in new pages
    commit(ids)   those rows now hold these ids: the pages become nodes. Until then nothing but page_table() tells

What is called an id here is a token's key, which says its class of arithmetic too (isa/classes.py): the same token in
another class is another id, and is never matched.

Invariants, which `KvTree.check` quotes by number
 1. Every page in use belongs to exactly one node or one reservation, and num_used counts them.
 2. A node has exactly as many references as holders: branches whose tip it is, and child nodes.
 3. A child is one deeper than its parent, has its origin, and jumps to its skew-binary ancestor.
 4. A node with a child is full. A node holds 1 to 16 tokens, a root none.
 5. A branch's length lies in its tip: in (start, start + len(tokens)], or is 0 at a root.
 6. Full nodes, and only they, are registered under their parent by their ids, each once.
 7. A page open for writing has one holder: a tip written in place has one reference, ends at the length of its branch
    and is not full; a copy or new page is in the reservation only.
 8. page_table() names the pages of the branch's path, the reserved ones in their places.
 9. The table of roots holds the roots in use, each under its own origin.
10. A branch that was dropped under pressure, or released, holds nothing; only a dropped one has lost ids.

The bytes of a prefix equal the bytes a fresh run would write (docs/numerics.md): it does not matter whose page serves.

Pressure. Memory is short, token ids are not: `Branch.park` says that nobody needs the branch now (an undo entry, a
session nobody talks to). When the pool is full, parked branches give up their pages, the longest parked first, and keep
their ids; `Branch.unpark` finds again what the tree still has and returns the ids whose rows must be computed again.

Every public method takes the tree's lock, so branches of one tree may be used by different threads; one branch belongs
to one thread at a time. A branch that is garbage-collected without `release` is released at the next reservation.
A change may be cut short anywhere by a KeyboardInterrupt: num_begun and num_ended differ from then on until the next
reservation, truncation or release, which makes references, free pages, registrations and tables anew (kv/mend.py).
Memory of freed pages goes back to the system at the end of `release`, and a page at a time in `commit`. A step that was
told to stop may still write rows after its branch has let go of them: it is over before anyone reserves again.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Sequence

from unsay.core import PAGE_TOKENS
from unsay.errors import OutOfPagesError
from unsay.forked import begins_anew, free
from unsay.kv.branch import Branch, State
from unsay.kv.check import check_tree
from unsay.kv.mend import mend
from unsay.kv.node import NO_PAGE, Node, Origin
from unsay.kv.pages import PagePool

__all__ = ["Branch", "KvTree"]


class KvTree:
    """All branches over one pool of pages."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.roots: dict[Origin, Node] = {}
        self.branches: weakref.WeakSet[Branch] = weakref.WeakSet()
        self.abandoned: deque[tuple[Node, list[int]]] = deque()
        self.lock = threading.Lock()
        self.clock = itertools.count(1)
        self.num_begun = self.num_ended = 0
        begins_anew(self)

    def begin_anew(self) -> None:
        """In a forked child: what another thread had begun is mended."""
        free(self.lock)
        self.pool.forget_threads()

    def root(self, adapter: str = "", salt: bytes = b"") -> Branch:
        """An empty branch."""
        with self.lock:
            self.num_begun += 1
            branch = Branch(self, self._root_of((adapter, salt)), 0)
            self.num_ended += 1
        return branch

    def match(self, token_ids: Sequence[int], adapter: str = "", salt: bytes = b"") -> Branch:
        """A branch that holds the longest prefix of `token_ids` found in full pages held by anyone; maybe empty.

        It may hold them all: a caller that needs the logits after the last token matches all but that one.
        """
        with self.lock:
            self.num_begun += 1
            node, length = self.longest_prefix((adapter, salt), token_ids)
            branch = Branch(self, node, length)
            self.num_ended += 1
        return branch

    def trim(self, max_pages: int | None = None) -> None:
        """Give free pages (all but a few) back to the system, one at a time; the lock is not held meanwhile."""
        for _ in itertools.repeat(None) if max_pages is None else range(max_pages):
            with self.lock:
                page = self.pool.take_excess()
            if page is None:
                return
            self.pool.discard(page)
            with self.lock:
                self.pool.put_cold()

    def check(self) -> None:
        """Assert every invariant above; O(everything)."""
        with self.lock:
            self.collect()
            check_tree(self)

    def _root_of(self, origin: Origin) -> Node:
        if origin not in self.roots:
            self.roots[origin] = Node(origin, NO_PAGE)
        return self.roots[origin]

    def longest_prefix(self, origin: Origin, token_ids: Sequence[int]) -> tuple[Node, int]:
        """Whole pages by lookup, then the page that shares most of what is left. The lock is held."""
        node, length = self._root_of(origin), 0
        while child := node.child(tuple(token_ids[length : length + PAGE_TOKENS])):
            node = child
            length += PAGE_TOKENS
        node, shared = node.longest_match(token_ids[length : length + PAGE_TOKENS])
        return node, length + shared

    def make_room(self, count: int) -> None:
        """Let `count` pages be free, if need be those of parked branches; OutOfPagesError when there are fewer."""
        while self.pool.num_free < count and self._drop_oldest_parked():
            pass
        if self.pool.num_free < count:
            mend(self)  # a KeyboardInterrupt into Branch.__del__ is lost, and so is what it held
        if self.pool.num_free < count:
            holders = sum(branch.holds_nodes for branch in self.branches)
            raise OutOfPagesError(
                f"{count} more KV pages are needed and {self.pool.num_free} of {self.pool.capacity} are free; "
                f"{holders} branches hold the others, none of them parked: release some, or load the model with more "
                f"kv_tokens (now {self.pool.capacity * PAGE_TOKENS})"
            )

    def take_pages(self, count: int) -> list[int]:
        """`count` pages; `make_room` came first."""
        return [page for _ in range(count) if (page := self.pool.allocate()) is not None]

    def _drop_oldest_parked(self) -> bool:
        parked = [branch for branch in self.branches if branch.state is State.PARKED]
        if parked:
            min(parked, key=lambda branch: branch.parked_at).drop()
        return bool(parked)

    def collect(self) -> None:
        """Mend what was cut short, and let go of what garbage-collected branches held."""
        if self.num_begun != self.num_ended:
            mend(self)
        while self.abandoned:
            self.num_begun += 1
            tip, reserved = self.abandoned.popleft()
            self.free_pages(reserved)
            self.unhold(tip)
            self.num_ended += 1

    def free_pages(self, pages: list[int]) -> None:
        """Give back pages that no node names."""
        for page in pages:
            self.pool.free(page)

    def unhold(self, node: Node) -> None:
        """One holder fewer; nodes that nobody holds any more are freed, up the path, without recursion."""
        node.refs -= 1
        while not node.refs:
            if node.depth == 0:
                del self.roots[node.origin]
                return
            if node.is_full:
                node.unregister()
            self.pool.free(node.page)
            node = node.parent
            node.refs -= 1
