"""Context: fork, checkpoint and abort over a branch."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unsay.errors import PositionError, RequestError
from unsay.kv.pages import PagePool
from unsay.kv.tree import KvTree
from unsay.vm.context import Context

TREE = KvTree(PagePool(4096, 256))


@pytest.fixture(autouse=True)
def _tree_stays_sound():
    yield
    gc.collect()
    TREE.check()
    assert TREE.pool.num_used == 0


def running(computed, pending=()):
    branch = TREE.root()
    branch.reserve(len(computed))
    branch.commit(list(computed))
    context = Context(branch)
    context.append(pending)
    return context


def computed(context):
    return context.branch.token_ids()


def tokens(context):
    return computed(context) + context.pending


def test_abort_keeps_the_target_and_appends_the_payload():
    context = running(range(10), [10])
    context.abort(4, [70, 71])
    assert computed(context) == [0, 1, 2, 3] and context.pending == [70, 71]


def test_abort_without_payload_computes_the_last_kept_token_again():
    context = running(range(10))
    context.abort(4)
    assert computed(context) == [0, 1, 2] and context.pending == [3]
    context.abort(4)
    assert computed(context) == [0, 1, 2] and context.pending == [3]


def test_abort_into_the_pending_tokens_keeps_what_is_computed():
    context = running(range(4), [4, 5, 6])
    context.abort(6, [9])
    assert computed(context) == [0, 1, 2, 3] and context.pending == [4, 5, 9]


def test_abort_to_zero_leaves_nothing():
    context = running(range(4))
    context.abort(0)
    assert context.length == 0 and context.pending == []


@pytest.mark.parametrize("target", [-1, 11, 2**63, -(2**63), 1.0, math.nan, math.inf, "3", True, None, np.float32(2)])
def test_a_position_that_is_no_index_is_refused_with_the_valid_range(target):
    context = running(range(10))
    with pytest.raises(PositionError, match=r"integer in 0\.\.10") as caught:
        context.abort(target, [1])
    assert caught.value.valid == (0, 10)
    assert tokens(context) == list(range(10))


@pytest.mark.parametrize("target", [0, 10, np.int64(3)])
def test_the_ends_of_the_range_and_numpy_integers_are_positions(target):
    context = running(range(10))
    context.abort(target, [1])
    assert tokens(context) == [*range(target), 1]


@pytest.mark.parametrize("token_id", [-1, 2**31, 1.5, "a", True, None])
def test_a_payload_that_is_no_token_is_refused_and_nothing_changes(token_id):
    context = running(range(10))
    with pytest.raises(RequestError, match="token 1 is"):
        context.abort(3, [5, token_id])
    assert tokens(context) == list(range(10))


def test_abort_restores_registers_and_pc_of_the_nearest_checkpoint():
    context = running([])
    for length in range(6):
        context.registers[3], context.pc = 100 + length, 50 + length
        if length % 2 == 0:
            assert context.checkpoint() == length
        context.append([length])
    context.abort(3, [9])
    assert (context.registers[3], context.pc) == (102, 52)
    context.abort(1)
    assert (context.registers[3], context.pc) == (100, 50)
    context.abort(0)
    assert (context.registers[3], context.pc) == (100, 50)


def test_without_a_checkpoint_abort_goes_back_to_the_birth_state():
    context = running(range(5))
    context.registers[2], context.pc = 7, 9
    context.abort(2)
    assert context.registers == [0] * 16 and context.pc == 0


def test_fork_is_independent_of_its_parent():
    parent = running(range(5), [5])
    parent.registers[1] = 4
    parent.checkpoint()
    child = parent.fork()
    child.abort(2, [80])
    child.registers[1] = 9
    parent.append([6])
    assert tokens(parent) == list(range(7)) and parent.registers[1] == 4
    assert tokens(child) == [0, 1, 80]
    parent.abort(6)
    assert parent.registers[1] == 4


def test_commit_moves_pending_tokens_into_the_branch():
    context = running([1], [2, 3])
    context.branch.reserve(2)
    context.commit(1)
    assert computed(context) == [1, 2] and context.pending == [3]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(0, 200))
def test_the_nearest_checkpoint_is_found_as_by_a_linear_search(steps, target):
    context = running([])
    marks = [(0, 0)]
    for count, step in enumerate(steps, start=1):
        context.append([0] * step)
        context.pc = count
        marks.append((context.checkpoint(), count))
    target = min(target, context.length)
    context.abort(target, [1])
    assert context.pc == max(mark for mark in marks if mark[0] <= target)[1]


def test_checkpoints_are_found_in_logarithmic_time():
    context = running([])
    for _ in range(5000):
        context.append([0])
        context.checkpoint()
    steps = 0
    point = context._checkpoint
    while point.index > 17:
        point = point.jump if point.jump is not None and point.jump.index > 17 else point.before
        steps += 1
    assert steps < 60
