"""Random sequences over the tree against a naive model: the list of ids of every branch. Every row is looked at."""

from __future__ import annotations

import mmap

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from tests.kv.test_tree import fill, row_value, rows
from unsay.core import PAGE_TOKENS
from unsay.errors import OutOfPagesError
from unsay.kv.node import num_shared
from unsay.kv.pages import PagePool
from unsay.kv.tree import Branch, KvTree

CAPACITY = 14

runs_of_ids = st.tuples(st.sampled_from([1, 3, 8, 16, 17, 40]), st.integers(0, 1)).map(lambda run: [run[1]] * run[0])
"""Runs of one of two ids, so that branches often fill the same pages."""


class TreeMachine(RuleBasedStateMachine):
    """A small pool, so that pressure is common; origins that only differ in adapter and salt."""

    branches = Bundle("branches")

    def __init__(self) -> None:
        super().__init__()
        self.tree = KvTree(PagePool(mmap.PAGESIZE, CAPACITY))
        self.model: dict[int, list[int]] = {}
        self.origins: dict[int, tuple[str, bytes]] = {}
        self.alive: dict[int, Branch] = {}

    def _adopt(self, branch: Branch, ids: list[int], origin: tuple[str, bytes]) -> Branch:
        self.model[id(branch)] = ids
        self.origins[id(branch)] = origin
        self.alive[id(branch)] = branch
        return branch

    @initialize(target=branches)
    def start(self) -> Branch:
        return self.open_root(("", b""))

    @rule(target=branches, origin=st.sampled_from([("", b""), ("", b""), ("a", b""), ("", b"a")]))
    def open_root(self, origin: tuple[str, bytes]) -> Branch:
        return self._adopt(self.tree.root(*origin), [], origin)

    @rule(branch=branches, ids=runs_of_ids, part=st.sampled_from([0.0, 0.5, 1.0, 1.0]))
    def append(self, branch: Branch, ids: list[int], part: float) -> None:
        """Commit some of what was written; as much as the pool allows."""
        self._resume(branch)
        num_committed = round(part * len(ids))
        try:
            fill(branch, ids, num_committed)
        except OutOfPagesError:
            assert self.tree.pool.num_free < len(ids) // PAGE_TOKENS + 2
            return
        self.model[id(branch)] += ids[:num_committed]

    @rule(branch=branches, num_tokens=st.integers(0, 40))
    def interrupt(self, branch: Branch, num_tokens: int) -> None:
        """A step that wrote garbage and never committed; its reservation stays open."""
        self._resume(branch)
        try:
            branch.reserve(num_tokens)
        except OutOfPagesError:
            return
        for position in range(branch.length, branch.length + num_tokens):
            page = branch.page_table()[position // PAGE_TOKENS]
            self.tree.pool.memory[page, position % PAGE_TOKENS] = 255

    @rule(branch=branches, part=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]))
    def truncate(self, branch: Branch, part: float) -> None:
        self._resume(branch)
        length = round(part * branch.length)
        branch.truncate(length)
        del self.model[id(branch)][length:]

    @rule(target=branches, branch=branches)
    def fork(self, branch: Branch) -> Branch:
        self._resume(branch)
        return self._adopt(branch.fork(), list(self.model[id(branch)]), self.origins[id(branch)])

    @rule(target=branches, other=branches, ids=runs_of_ids)
    def match(self, other: Branch, ids: list[int]) -> Branch:
        wanted = self.model[id(other)] + ids
        origin = self.origins[id(other)]
        found = self.tree.match(wanted, *origin)
        assert found.length >= max(self._num_matching(key, wanted) for key in self.alive if self.origins[key] == origin)
        return self._adopt(found, wanted[: found.length], origin)

    def _num_matching(self, key: int, wanted: list[int]) -> int:
        """Leading ids of `wanted` in the whole pages of this branch."""
        length = self.alive[key].length // PAGE_TOKENS * PAGE_TOKENS
        return num_shared(self.model[key][:length], wanted)

    @rule(branch=branches)
    def park(self, branch: Branch) -> None:
        branch.park()

    @rule(branch=consumes(branches))
    def release(self, branch: Branch) -> None:
        branch.release()
        del self.alive[id(branch)], self.model[id(branch)], self.origins[id(branch)]

    def _resume(self, branch: Branch) -> None:
        """Unpark; what was lost is not computed again here, so the model forgets it too."""
        lost: list[int] = []
        branch.unpark(lost)
        ids = self.model[id(branch)]
        assert lost == ids[branch.length :]
        del ids[branch.length :]

    @invariant()
    def invariants_hold(self) -> None:
        self.tree.check()

    @invariant()
    def every_branch_holds_its_ids_and_rows(self) -> None:
        for key, branch in self.alive.items():
            ids = self.model[key]
            assert branch.token_ids() == ids
            assert rows(branch) == [row_value(ids[: n + 1]) for n in range(branch.length)]


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
