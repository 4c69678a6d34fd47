"""Changes of the tree cut short by a KeyboardInterrupt: what was said before holds, or what is said after."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tests.cuts import every_cut
from tests.kv.test_tree import fill, row_value, rows
from unsay.kv.branch import LIVE
from unsay.kv.pages import PagePool
from unsay.kv.tree import KvTree

A, B = list(range(100, 137)), list(range(100, 120))


def forest() -> SimpleNamespace:
    """a: 37 tokens; b: 20 of them, shared; c: parked, 40 of its own; d: 48 tokens of its own, its last page full."""
    tree = KvTree(PagePool(16, 12))
    a = tree.root()
    fill(a, A)
    b = a.fork()
    b.truncate(20)
    c = tree.root()
    fill(c, [*range(200, 240)])
    c.park()
    d = tree.root()
    fill(d, [*range(300, 348)])
    return SimpleNamespace(tree=tree, a=a, b=b, c=c, d=d)


CHANGES: dict[str, tuple[Callable[..., object], str, list[list[int]]]] = {
    "fork": (lambda f: f.a.fork(), "a", [A]),
    "truncate": (lambda f: f.a.truncate(5), "a", [A, A[:5]]),
    "truncate to nothing": (lambda f: f.d.truncate(0), "d", [[*range(300, 348)], []]),
    "release": (lambda f: f.d.release(), "d", [[*range(300, 348)], []]),
    "park": (lambda f: f.d.park(), "d", [[*range(300, 348)]]),
    "append in a shared page": (lambda f: fill(f.b, [7] * 5), "b", [B, B + [7] * 5]),
    "append what another has": (lambda f: fill(f.b, A[20:]), "b", [B, A[:32], A]),
    "append pages": (lambda f: fill(f.a, [8] * 30), "a", [A, A + [8] * 11, A + [8] * 27, A + [8] * 30]),
    "append under pressure": (
        lambda f: fill(f.d, [9] * 80),
        "d",
        [[*range(300, 348)] + [9] * count for count in range(0, 81, 16)],
    ),
    "match": (lambda f: f.tree.match(A), "a", [A]),
    "root": (lambda f: f.tree.root("other"), "a", [A]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_cut_short_leaves_a_sound_tree(name: str) -> None:
    do, changed, allowed = CHANGES[name]
    for number, f in every_cut(forest, do):
        f.tree.check()
        assert getattr(f, changed).token_ids() in allowed, number
        for branch in (f.a, f.b, f.d):
            ids = branch.token_ids()
            assert rows(branch) == [row_value(ids[: end + 1]) for end in range(len(ids))], number
        lost: list[int] = []
        f.c.unpark(lost)
        assert f.c.token_ids() + lost == [*range(200, 240)], number
        f.tree.check()
        for branch in (f.a, f.b, f.c, f.d):
            branch.release()
        f.tree.check()
        assert f.tree.pool.num_used == 0, number


@pytest.mark.parametrize("name", CHANGES)
def test_what_lets_go_of_pages_may_come_first_behind_a_change_cut_short(name: str) -> None:
    do, _, _ = CHANGES[name]
    for number, f in every_cut(forest, do):
        for branch in (f.a, f.b, f.c, f.d):
            if branch.state is LIVE:
                branch.truncate(branch.length // 2)
            branch.release()
        f.tree.check()
        assert f.tree.pool.num_used == 0, number


def test_to_take_a_branch_up_again_cut_short_loses_no_token() -> None:
    def parked() -> SimpleNamespace:
        f = forest()
        f.pending = []
        f.d.park()
        fill(f.a, [1] * 120)
        return f

    for number, f in every_cut(parked, lambda f: f.c.unpark(f.pending)):
        assert f.c.token_ids() + f.pending == [*range(200, 240)], number
        f.tree.check()
