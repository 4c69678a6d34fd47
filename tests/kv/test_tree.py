"""The KV tree: sharing, copy on write, rollback, matching, pressure. `fill` writes a row as the executor would."""

from __future__ import annotations

import gc
import math
import mmap
import threading
import tracemalloc
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest

from tests.work import num_lines
from unsay.core import PAGE_TOKENS
from unsay.errors import OutOfPagesError, PositionError
from unsay.kv.node import NO_PAGE, Node, ancestor
from unsay.kv.pages import PagePool
from unsay.kv.tree import Branch, KvTree

LINES_PER_NODE = 2
"""Lines that `ancestor` runs at each node it visits."""


def make_tree(capacity: int = 64) -> KvTree:
    return KvTree(PagePool(mmap.PAGESIZE, capacity))


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * mmap.PAGESIZE


def row_value(prefix: Sequence[int]) -> int:
    """What a row holds: like keys and values, a function of the ids up to and with its own."""
    return hash(tuple(prefix)) % 251 + 1


def fill(branch: Branch, ids: Sequence[int], num_committed: int | None = None) -> None:
    """Reserve, write every row, commit the first `num_committed` (all)."""
    branch.reserve(len(ids))
    whole = branch.token_ids() + list(ids)
    table = branch.page_table()
    for position in range(branch.length, len(whole)):
        page = table[position // PAGE_TOKENS]
        branch.tree.pool.memory[page, position % PAGE_TOKENS] = row_value(whole[: position + 1])
    branch.commit(ids[:num_committed])


def unparked(branch: Branch) -> list[int]:
    """Unpark it; what must be computed again."""
    lost: list[int] = []
    branch.unpark(lost)
    return lost


def rows(branch: Branch) -> list[int]:
    """The bytes of every committed row."""
    table = branch.page_table()
    memory = branch.tree.pool.memory
    return [memory[table[p // PAGE_TOKENS], p % PAGE_TOKENS] for p in range(branch.length)]


def assert_holds(branch: Branch, ids: Sequence[int]) -> None:
    assert branch.token_ids() == list(ids)
    assert branch.length == len(ids)
    assert rows(branch) == [row_value(ids[: n + 1]) for n in range(len(ids))]
    branch.tree.check()


def filled(tree: KvTree, ids: Sequence[int]) -> Branch:
    branch = tree.root()
    fill(branch, ids)
    return branch


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 32, 100])
def test_a_branch_holds_what_was_committed(length: int) -> None:
    branch = filled(make_tree(), range(length))
    assert_holds(branch, range(length))
    assert len(branch.page_table()) == branch.tree.pool.num_used == -(-length // PAGE_TOKENS)
    assert [branch.token_at(position) for position in range(length)] == list(range(length))


def test_fork_shares_pages_until_write() -> None:
    tree = make_tree()
    parent = filled(tree, range(20))
    child = parent.fork()
    assert tree.pool.num_used == 2
    assert list(child.page_table()) == list(parent.page_table())
    fill(child, [100])
    assert tree.pool.num_used == 3
    assert child.page_table()[0] == parent.page_table()[0]
    assert child.page_table()[1] != parent.page_table()[1]
    assert_holds(child, [*range(20), 100])
    assert_holds(parent, range(20))
    fill(parent, [200])
    assert tree.pool.num_used == 3, "the parent is alone on its page again"
    assert_holds(parent, [*range(20), 200])


def test_a_fork_at_a_page_boundary_copies_nothing() -> None:
    tree = make_tree()
    parent = filled(tree, range(32))
    child = parent.fork()
    fill(child, [7])
    assert tree.pool.num_used == 3
    assert_holds(child, [*range(32), 7])
    assert_holds(parent, range(32))


@pytest.mark.parametrize("target", [0, 1, 15, 16, 17, 31, 32, 40])
def test_rollback_keeps_the_prefix_and_what_an_undo_entry_holds(target: int) -> None:
    tree = make_tree()
    branch = filled(tree, range(40))
    undo = branch.fork()
    branch.truncate(target)
    assert_holds(branch, range(target))
    fill(branch, [500, 501])
    assert_holds(branch, [*range(target), 500, 501])
    assert_holds(undo, range(40))


def test_rollback_without_an_undo_entry_frees_pages() -> None:
    tree = make_tree()
    branch = filled(tree, range(100))
    branch.truncate(17)
    tree.check()
    assert tree.pool.num_used == 2
    branch.truncate(0)
    assert tree.pool.num_used == 0


@pytest.mark.parametrize("length", [-1, 21, 2**63, 1.0, float("nan"), "3", True, None])
def test_a_length_outside_the_branch_is_refused(length: object) -> None:
    branch = filled(make_tree(), range(20))
    with pytest.raises(PositionError, match=r"0\.\.20"):
        branch.truncate(length)  # type: ignore[arg-type]
    assert_holds(branch, range(20))


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("then", ["nothing", "fork", "truncate", "reserve"])
def test_an_interrupted_step_leaves_no_trace(is_shared: bool, then: str) -> None:
    tree = make_tree()
    branch = filled(tree, range(20))
    held = branch.fork() if is_shared else branch
    table = list(branch.page_table())
    fill(branch, range(100, 150), num_committed=0)
    if then == "fork":
        branch.fork().release()
    elif then == "truncate":
        branch.truncate(20)
    elif then == "reserve":
        branch.reserve(1)
        branch.commit([])
    assert tree.pool.num_used == 2
    assert list(branch.page_table()) == table
    assert_holds(branch, range(20))
    assert_holds(held, range(20))
    fill(branch, [9])
    assert_holds(branch, [*range(20), 9])


def test_part_of_a_reservation_may_be_committed() -> None:
    tree = make_tree()
    branch = tree.root()
    fill(branch, range(100), num_committed=18)
    assert_holds(branch, range(18))
    assert tree.pool.num_used == 2


def test_more_than_was_reserved_is_refused() -> None:
    branch = make_tree().root()
    branch.reserve(2)
    with pytest.raises(AssertionError):
        branch.commit([1, 2, 3])


def test_overwriting_a_full_page_after_a_rollback_takes_it_out_of_the_lookup() -> None:
    tree = make_tree()
    branch = filled(tree, range(32))
    branch.truncate(20)
    assert tree.match(range(32)).length == 32
    branch.reserve(1)
    assert tree.match(range(32)).length == 16
    fill(branch, [99])
    assert_holds(branch, [*range(20), 99])


def test_match_finds_whole_pages_and_part_of_one() -> None:
    tree = make_tree()
    first = filled(tree, range(40))
    assert_holds(tree.match(range(50)), range(32))
    partial = tree.match([*range(20), 999, 998])
    assert_holds(partial, range(20))
    fill(partial, [999, 998])
    assert_holds(partial, [*range(20), 999, 998])
    assert_holds(first, range(40))
    assert_holds(tree.match([5, 6]), [])
    assert_holds(tree.match([]), [])


def test_match_compares_ids_and_not_hashes() -> None:
    """-1 and -2 have one hash in CPython; so have 2**61 - 1 and 0."""
    assert hash((-1,) * 16) == hash((-2,) * 16)
    tree = make_tree()
    branch = filled(tree, [-1] * 16)
    assert tree.match([-2] * 16).length == 0
    assert tree.match([-1] * 16).length == 16
    branch.release()


def test_an_adapter_is_never_taken_for_a_salt() -> None:
    tree = make_tree()
    branch = tree.root(adapter="a", salt=b"")
    fill(branch, range(32))
    assert tree.match(range(32), adapter="", salt=b"a").length == 0
    assert tree.match(range(32)).length == 0
    assert tree.match(range(32), adapter="a", salt=b"").length == 32
    tree.check()


def test_nothing_is_matched_once_nobody_holds_it() -> None:
    tree = make_tree()
    filled(tree, range(32)).release()
    assert tree.pool.num_used == 0
    assert tree.match(range(32)).length == 0


def test_identical_pages_filled_at_once_become_one() -> None:
    tree = make_tree()
    branches = [tree.root() for _ in range(16)]
    for branch in branches:
        branch.reserve(40)
    ids = list(range(40))
    for branch in branches:
        fill(branch, ids)
    for branch in branches:
        assert_holds(branch, ids)
    assert tree.pool.num_used == 2 + 16
    for number, branch in enumerate(branches):
        fill(branch, [1000 + number])
    for number, branch in enumerate(branches):
        assert_holds(branch, [*ids, 1000 + number])


def test_release_is_idempotent_and_exact() -> None:
    tree = make_tree()
    parent = filled(tree, range(50))
    children = [parent.fork() for _ in range(5)]
    for child in children:
        fill(child, [1])
    for branch in (parent, *children, parent):
        branch.release()
        tree.check()
    assert tree.pool.num_used == 0
    assert not tree.roots


def test_a_branch_that_was_released_is_refused() -> None:
    branch = filled(make_tree(), range(3))
    branch.release()
    with pytest.raises(AssertionError, match="given back"):
        branch.fork()


def test_a_forgotten_branch_is_released() -> None:
    tree = make_tree()
    branch = filled(tree, range(50))
    branch.reserve(30)
    del branch
    gc.collect()
    tree.check()
    assert tree.pool.num_used == 0


def test_releasing_a_long_chain_does_not_recurse() -> None:
    tree = make_tree(capacity=20_000)
    branch = tree.root()
    for start in range(0, 320_000, 16_000):
        branch.reserve(16_000)
        branch.commit(range(start, start + 16_000))
    assert tree.pool.num_used == 20_000
    branch.release()
    assert tree.pool.num_used == 0


def test_ancestors_are_found_at_every_length() -> None:
    tree = make_tree(capacity=200)
    branch = filled(tree, range(3000))
    for target in range(2999, -1, -13):
        fork = branch.fork()
        fork.truncate(target)
        assert fork.token_ids() == list(range(target))


def test_released_branches_give_memory_back_to_the_system() -> None:
    tree = KvTree(PagePool(64 * mmap.PAGESIZE, 256))
    before = resident_bytes()
    branch = tree.root()
    branch.reserve(250 * PAGE_TOKENS)
    np.asarray(tree.pool.memory)[np.asarray(branch.page_table())] = 1
    branch.commit(range(250 * PAGE_TOKENS))
    full = resident_bytes()
    branch.release()
    assert full - before > 240 * tree.pool.page_bytes
    assert resident_bytes() - before < 20 * tree.pool.page_bytes


def test_tokens_after_a_long_rollback_give_its_memory_back_bit_by_bit() -> None:
    tree = make_tree(capacity=100)
    branch = filled(tree, range(100 * PAGE_TOKENS))
    branch.truncate(PAGE_TOKENS)
    assert tree.pool.num_warm == 99
    for number in range(120):
        fill(branch, [number])
    assert tree.pool.num_warm < 16


def test_a_full_pool_changes_nothing() -> None:
    tree = make_tree(capacity=4)
    branch = filled(tree, range(40))
    with pytest.raises(OutOfPagesError, match="kv_tokens"):
        branch.reserve(40)
    assert tree.pool.num_used == 3
    assert_holds(branch, range(40))
    fill(branch, range(40, 64))
    assert_holds(branch, range(64))


def test_pressure_takes_the_pages_of_parked_branches_oldest_first_and_no_ids() -> None:
    tree = make_tree(capacity=6)
    old, new = filled(tree, range(32)), filled(tree, range(100, 132))
    live = filled(tree, range(200, 232))
    new.park()
    old.park()
    fill(live, [1])
    assert new.token_ids() == list(range(100, 132)) and new.length == 0
    assert old.length == 32 and old.token_ids() == list(range(32))
    assert unparked(old) == []
    assert_holds(old, range(32))
    lost = unparked(new)
    assert lost == list(range(100, 132))
    old.release()
    fill(new, lost)
    assert_holds(new, range(100, 132))


def test_unpark_finds_again_what_others_hold() -> None:
    tree = make_tree(capacity=4)
    branch = filled(tree, range(40))
    undo = branch.fork()
    undo.park()
    branch.truncate(34)
    fill(branch, [77])
    assert tree.pool.num_used == 4
    branch.truncate(32)
    fill(branch, range(300, 320))
    assert unparked(undo) == list(range(32, 40))
    assert_holds(undo, range(32))


def test_a_fork_is_the_same_work_at_any_length_and_a_rollback_grows_with_its_logarithm() -> None:
    """benchmarks/corrections.py has the times."""
    (fork_short, rollback_short), (fork_long, rollback_long) = (_work(num_tokens) for num_tokens in (512, 64_000))
    assert fork_short == fork_long
    assert rollback_long - rollback_short <= LINES_PER_NODE * 3 * math.log2(64_000 / 512)


def _work(num_tokens: int) -> tuple[int, int]:
    """Lines run by a fork, and by the longest rollback, in a branch of this length."""
    tree = make_tree(capacity=num_tokens // PAGE_TOKENS + 8)
    branch = tree.root()
    branch.reserve(num_tokens)
    branch.commit(range(num_tokens))
    places = range(0, num_tokens, num_tokens // 128)
    return num_lines(branch.fork), max(num_lines(partial(branch.fork().truncate, place)) for place in places)


def test_an_ancestor_is_found_within_three_times_the_logarithm_of_the_depth() -> None:
    tip = Node(("", b""), NO_PAGE)
    for page in range(4000):
        tip = Node(tip.origin, page, tip)
    most = max(num_lines(partial(ancestor, tip, depth)) for depth in range(4001))
    assert most <= LINES_PER_NODE * 3 * math.log2(4000)


def test_a_thousand_forks_of_a_long_context_are_small() -> None:
    tree = make_tree(capacity=200)
    branch = tree.root()
    branch.reserve(2000)
    branch.commit(range(2000))
    branch.page_table()
    tracemalloc.start()
    forks = [branch.fork() for _ in range(1000)]
    tables = sum(len(fork.page_table()) for fork in forks)
    added, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert tables == 125_000
    assert tree.pool.num_used == 125
    assert added < 1 << 20, added


def test_branches_of_one_tree_may_be_used_by_many_threads() -> None:
    tree = make_tree(capacity=400)
    base = filled(tree, range(40))
    forks = [base.fork() for _ in range(8)]
    threads = [threading.Thread(target=_edit, args=(fork, number)) for number, fork in enumerate(forks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, fork in enumerate(forks):
        assert_holds(fork, [*range(38), *range(1000 * number, 1000 * number + 30)])


def _edit(branch: Branch, number: int) -> None:
    for _ in range(20):
        branch.truncate(38)
        fill(branch, range(1000 * number, 1000 * number + 30))
