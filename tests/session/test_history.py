"""What undo costs: one kept context for all entries since the last rollback, and no page."""

from __future__ import annotations

import pytest

from unsay import Model, SamplingParams, Session
from unsay.kv.branch import LIVE, PARKED, RELEASED
from unsay.vm.context import Context

PARAMS = SamplingParams(temperature=1.0, seed=3, ignore_eos=True)


@pytest.fixture
def chat(model: Model):
    with model.session(params=PARAMS) as chat:
        yield chat


def contexts(chat: Session) -> list[Context]:
    chat.history()
    return [node.context for node in chat._timeline.history.nodes]


def test_growth_needs_one_context_and_a_rollback_leaves_it_to_all_before_and_to_itself(chat: Session) -> None:
    chat.user("say")
    chat.generate(max_tokens=5)
    chat.inject("the pan")
    chat.generate(max_tokens=5)
    first = chat._timeline.context
    assert contexts(chat) == [first] * 5
    chat.rollback(to=3)
    assert contexts(chat) == [first] * 6
    chat.generate(max_tokens=5)
    assert contexts(chat) == [first] * 6 + [chat._timeline.context]
    assert (first.branch.state, chat._timeline.context.branch.state) == (PARKED, LIVE)


def test_a_rollback_is_a_mark_until_the_next_verb(chat: Session) -> None:
    chat.user("say")
    chat.generate(max_tokens=5)
    context, ids, num_entries = chat._timeline.context, chat.token_ids, len(chat.history())
    chat.rollback(to=3)
    assert (context.branch.state, context.keys(), len(chat._timeline.history.nodes)) == (LIVE, ids, num_entries)
    assert chat.token_ids == ids[:-2]
    chat.rollback(to=1)
    chat.rollback(to=1)
    assert [entry.verb for entry in chat.history()[num_entries:]] == ["rollback"] * 3
    chat.undo(2)
    assert chat.token_ids == ids[:-2]


def test_an_interrupt_behind_a_rollback_in_the_loop_is_no_part_of_its_entry(chat: Session) -> None:
    chat.user("say")
    for _ in chat.stream(max_tokens=5):
        chat.rollback(to=1)
        assert chat.interrupt()
    assert chat.finish == "interrupt"
    chat.undo()
    chat.redo()
    assert (chat.finish, len(chat.answer_ids)) == (None, 1)


def test_a_context_in_which_nothing_was_entered_is_given_back(model: Model, chat: Session) -> None:
    chat.user("say")
    chat.generate(max_tokens=5)
    chat.rollback(to=3)
    chat.fork().close()
    own = chat._timeline.context
    chat.rollback(to=2)
    chat.undo()
    assert own.branch.state is RELEASED
    model.tree.check()


def test_rollback_and_undo_touch_no_branch_before_the_session_goes_on(model: Model, chat: Session) -> None:
    chat.user("say")
    chat.generate(max_tokens=5)
    chat.rollback(to=3)
    before = len(model.tree.branches)
    for _ in range(20):
        chat.undo()
        chat.rollback(to=3)
    assert len(model.tree.branches) == before


def test_rollback_undo_and_fork_take_no_page(model: Model, chat: Session) -> None:
    chat.user("say " * 60)
    chat.generate(max_tokens=20)
    before = model.tree.pool.num_used
    others = [chat.fork() for _ in range(50)]
    for _ in range(20):
        chat.rollback(to=7)
        chat.undo()
    assert model.tree.pool.num_used == before
    for other in others:
        other.close()


def test_an_entry_lasts_as_long_as_its_session(model: Model, chat: Session) -> None:
    chat.user("say")
    chat.generate(max_tokens=30)
    whole = chat.token_ids
    chat.rollback(to=1)
    for _ in range(5):
        chat.generate(max_tokens=10)
        chat.rollback(to=1)
    chat.checkout(2)
    assert chat.token_ids == whole


def test_redo_goes_where_undo_came_from(chat: Session) -> None:
    chat.append("x")
    for text in ("one", "two"):
        chat.inject(text)
        chat.undo()
    chat.inject("three")
    three = chat.token_ids
    chat.undo()
    chat.redo()
    assert chat.token_ids == three
    chat.checkout(2)
    chat.undo()
    chat.redo()
    assert chat.answer == "one"


def test_undo_of_more_steps_than_there_are_changes_nothing(chat: Session) -> None:
    chat.append("x")
    chat.inject("one")
    ids = chat.token_ids
    with pytest.raises(Exception, match="nothing to undo"):
        chat.undo(3)
    assert chat.token_ids == ids
    assert chat.history()[-1].is_current


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_steps_are_a_positive_integer(chat: Session, steps: object) -> None:
    chat.append("x")
    with pytest.raises(Exception, match="number of steps"):
        chat.undo(steps)  # type: ignore[arg-type]
