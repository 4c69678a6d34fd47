"""A session given back from its log is the session that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.models import held_in_a_step
from unsay import Model, SamplingParams, Session
from unsay.errors import RequestError, SessionLogError
from unsay.session.log import SessionLog

PARAMS = SamplingParams(temperature=1.0, seed=3, ignore_eos=True, logit_bias={7: 0.5}, stop=("\x00",))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SessionLog]:
    with SessionLog(tmp_path / "sessions.db") as opened:
        yield opened


def talk(chat: Session) -> None:
    """Every verb once, with branches."""
    chat.user("say")
    for event in chat.stream(max_tokens=40):
        if event.index == 25:
            chat.rollback(to=7)
            chat.inject("the pan")
    chat.undo(2)
    chat.inject(" pandas")
    chat.generate(max_tokens=20)
    chat.checkout(3)
    chat.redo()
    chat.user("next")
    for event in chat.stream(max_tokens=30):
        if event.index == 3:
            chat.interrupt()


def assert_same(model: Model, restored: Session, chat: Session) -> None:
    assert restored.token_ids == chat.token_ids
    assert (restored.answer_ids, restored.answer, restored.finish) == (chat.answer_ids, chat.answer, chat.finish)
    assert restored.params == chat.params
    verbs = [(entry.number, entry.parent, entry.verb, entry.num_tokens, entry.is_current) for entry in chat.history()]
    assert [
        (entry.number, entry.parent, entry.verb, entry.num_tokens, entry.is_current) for entry in restored.history()
    ] == verbs
    assert np.array_equal(restored.logits(), chat.logits())


def test_a_restored_session_is_the_same_in_every_entry(model: Model, log: SessionLog) -> None:
    with model.session(params=PARAMS, log=log) as chat:
        talk(chat)
        (logged,) = log.sessions()
        states = []
        for entry in chat.history():
            chat.checkout(entry.number)
            states.append((chat.token_ids, chat.answer_ids, chat.finish))
        chat.undo()
        with model.restore(log, logged.id) as restored:
            assert_same(model, restored, chat)
            restored.redo()
            assert restored.token_ids == states[-1][0]
            for number, state in enumerate(states):
                restored.checkout(number)
                assert (restored.token_ids, restored.answer_ids, restored.finish) == state


@pytest.mark.parametrize("finish", ["length", "interrupt"])
def test_an_injection_taken_back_leaves_why_the_answer_had_ended(model: Model, log: SessionLog, finish: str) -> None:
    with model.session(params=PARAMS, log=log) as chat:
        chat.user("say")
        for event in chat.stream(max_tokens=4):
            if finish == "interrupt" and event.index == 2:
                chat.interrupt()
        answer = chat.answer
        chat.inject("the pan")
        assert chat.finish is None
        chat.undo()
        assert (chat.finish, chat.answer) == (finish, answer)
        with model.restore(log, log.sessions()[0].id) as restored:
            assert_same(model, restored, chat)


def test_a_stop_is_in_the_log_when_it_has_returned(model: Model, log: SessionLog) -> None:
    with model.session(params=PARAMS, log=log) as chat:
        chat.user("say")
        with held_in_a_step(model, chat, 3):
            assert chat.interrupt()
            with model.restore(log, log.sessions()[0].id) as restored:
                assert (restored.finish, len(restored.answer_ids)) == ("interrupt", 3)


def test_a_restored_session_goes_on_as_the_first_would_have(model: Model, log: SessionLog) -> None:
    with model.session(params=PARAMS, log=log) as chat:
        talk(chat)
        (logged,) = log.sessions()
        restored = model.restore(log, logged.id)
        restored.generate(max_tokens=9)
        after = restored.token_ids
        restored.close()
        with model.restore(log, logged.id) as again:
            assert again.token_ids == after
        with pytest.raises(SessionLogError, match="another process"):
            chat.user("unaware")
        assert chat.token_ids == after[:-9], "a verb that could not be logged changed nothing"


def test_a_fork_is_a_session_of_its_own_in_the_log(model: Model, log: SessionLog) -> None:
    with model.session(params=PARAMS, system="Be brief.", log=log) as chat:
        chat.user("say")
        chat.generate(max_tokens=20)
        with chat.fork() as other:
            other.rollback(to=4)
            other.generate(max_tokens=3)
            first, second = log.sessions()
            assert second.parent == first.id
            with model.restore(log, second.id) as restored:
                assert_same(model, restored, other)


def test_a_crash_loses_less_than_a_page_of_sampled_tokens(model: Model, log: SessionLog) -> None:
    with model.session(params=PARAMS, log=log) as chat:
        chat.user("say")
        (logged,) = log.sessions()
        for event in chat.stream(max_tokens=40):
            with model.restore(log, logged.id) as as_after_a_crash:
                assert event.index + 1 - len(as_after_a_crash.answer_ids) < 16
                assert chat.token_ids[: len(as_after_a_crash.token_ids)] == as_after_a_crash.token_ids


def test_a_session_the_log_does_not_have_is_said(model: Model, log: SessionLog) -> None:
    with pytest.raises(RequestError, match="no session"):
        model.restore(log, "nobody")


@pytest.mark.parametrize("look", ["history", "diff", "fork"])
def test_entries_made_by_looking_are_in_the_log(model: Model, log: SessionLog, look: str) -> None:
    with model.session(params=PARAMS, log=log) as chat:
        chat.user("say")
        chat.generate(max_tokens=5)
        made = getattr(chat, look)()
        if look == "fork":
            made.close()
        chat.generate(max_tokens=5)
        chat.rollback(to=8)
        chat.undo(2)
        chat.redo()
        (logged,) = (logged for logged in log.sessions() if logged.id == chat._timeline._journal.session)
        with model.restore(log, logged.id) as restored:
            assert_same(model, restored, chat)
            assert restored.history() == chat.history(), "with the text that a rollback dropped"
