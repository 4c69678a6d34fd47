"""Whatever path of verbs led to a session's ids, its KV bytes and next logits are those of a run that saw only the ids,
each in its class of arithmetic.

The fresh run shares no page with anybody (tests/exactness/runs.py), and now and then the machine takes every page that
undo entries hold, so that what comes back is what was computed again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

import unsay
from tests.exactness.runs import Outcome, fresh_branch, kv_bits, run_alone
from tests.session.test_session_machine import CONTEXT_LENGTH, PARAMS, Verbs
from tests.tiny import write_tiny_gguf
from unsay import Model, Session
from unsay.core import PAGE_TOKENS
from unsay.errors import OutOfPagesError
from unsay.vm.context import Context

COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None)


def squeeze(model: Model) -> None:
    """Ask for more pages than there are: everything droppable is dropped."""
    branch = fresh_branch(model)
    with pytest.raises(OutOfPagesError):
        branch.reserve((model.tree.pool.capacity + 1) * PAGE_TOKENS)
    branch.release()


def keys(chat: Session) -> list[int]:
    """Every token delivered, with its class."""
    return chat._timeline.context.keys()[: len(chat.token_ids)]


def fresh(model: Model, chat: Session) -> Outcome:
    """A run of the same tokens in the same classes, which shares nothing."""
    return run_alone(model, keys(chat))


def assert_exact(model: Model, chat: Session, fresh: Outcome) -> None:
    """Every computed row, and the logits after the last token, bit by bit."""
    logits = chat.logits().view(np.uint32)
    np.testing.assert_array_equal(logits, fresh.logits[-1], "logits")
    context = chat._timeline.context
    assert context is not None
    rows = kv_bits(model, context.branch)
    assert len(rows) >= len(chat.token_ids) - 1
    np.testing.assert_array_equal(rows, fresh.rows[: len(rows)], "KV bytes")


class ExactVerbs(Verbs):
    """Verbs on machine code; after each, the bytes of every session."""

    executor = "exact"

    @rule()
    def squeeze(self) -> None:
        squeeze(self.model)

    @rule(data=st.data(), num_tokens=st.integers(1, 9))
    def interrupt(self, data: st.DataObject, num_tokens: int) -> None:
        chat = self.pick(data)
        if self.room(chat) > 20:
            for number, _ in enumerate(chat.stream(max_tokens=20)):
                if number == num_tokens:
                    assert chat.interrupt()
            assert chat.finish is not None

    @invariant()
    def every_state_has_the_bytes_of_a_fresh_run(self) -> None:
        for chat in self.sessions:
            if chat.token_ids:
                assert_exact(self.model, chat, fresh(self.model, chat))


@pytest.mark.parametrize("num_threads", [1, 2])
def test_every_path_of_verbs_ends_in_the_same_bits(tmp_path: Path, num_threads: int) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", context_length=CONTEXT_LENGTH, extra_tokens=11)
    with unsay.load(path, num_threads=num_threads, kv_tokens=4096) as model:
        ExactVerbs.models[ExactVerbs.executor] = model
        run_state_machine_as_test(ExactVerbs, settings=settings(COMMON, max_examples=8, stateful_step_count=20))


def test_smollm2_paths_end_in_the_same_bits(smollm2: Path) -> None:
    short = settings(COMMON, max_examples=2, stateful_step_count=8, phases=[Phase.generate], derandomize=True)
    with unsay.load(smollm2, kv_tokens=4096) as model:
        ExactVerbs.models[ExactVerbs.executor] = model
        run_state_machine_as_test(ExactVerbs, settings=short)


@pytest.mark.parametrize("squeezed", [False, True])
def test_undo_and_redo_give_back_the_same_bits(tiny_variant_path: Path, squeezed: bool) -> None:
    """One path in full, on every kind of weight: correct, undo to the wrong answer, redo to the right one."""
    with unsay.load(tiny_variant_path, kv_tokens=4096) as model, model.session(params=PARAMS) as chat:
        chat.user("the pandas and the others")
        chat.generate(max_tokens=70)
        states = {}
        chat.rollback(to=37)
        chat.inject("a correction")
        chat.generate(max_tokens=30)
        for name, verb in (("right", lambda: None), ("wrong", lambda: chat.undo(3)), ("again", lambda: chat.redo(3))):
            verb()
            states[name] = chat.token_ids
            assert_exact(model, chat, run_alone(model, chat.token_ids, 16))
            if squeezed:
                squeeze(model)
        assert states["right"] == states["again"] != states["wrong"]
        assert len(states["wrong"]) - len(chat.token_ids[: -len(chat.answer_ids)]) == 70


def test_what_a_rollback_keeps_is_not_touched(tiny_path: Path) -> None:
    """The pages themselves, garbage rows too, are the bytes they were: rollback writes nothing."""
    with unsay.load(tiny_path, kv_tokens=1024) as model:
        context = Context(model.tree.root())
        context.append(range(100))
        model.engine.compute(context, 1)
        table = context.branch.page_table()
        before = np.asarray(model.tree.pool.memory)[table].copy()
        undo = context.fork()
        context.abort(50, [1, 2, 3])
        np.testing.assert_array_equal(np.asarray(model.tree.pool.memory)[table], before)
        model.engine.compute(context, 1)
        np.testing.assert_array_equal(np.asarray(model.tree.pool.memory)[table], before)
        assert list(undo.branch.page_table()) == list(table)
        for each in (context, undo):
            each.release()
