"""Ctrl-C at every place of every verb: the verb was, or was not; what comes after has the same bits; a log agrees."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuts import Cut
from tests.models import loaded
from unsay import Model, SamplingParams, Session
from unsay.session.log import SessionLog

STEP = {False: 11, True: 97}
"""Every how many-th place is tried, without a log and with one."""

TWO = SamplingParams(max_tokens=2, ignore_eos=True)

VERBS: dict[str, Callable[[Session], object]] = {
    "append": lambda chat: chat.append("and more"),
    "inject": lambda chat: chat.inject("no"),
    "rollback": lambda chat: chat.rollback(to=1),
    "rollback to nothing": lambda chat: chat.rollback(to=0),
    "undo": lambda chat: chat.undo(),
    "undo two": lambda chat: chat.undo(2),
    "checkout": lambda chat: chat.checkout(1),
    "fork": lambda chat: chat.fork(),
    "diff": lambda chat: chat.diff(),
    "logits": lambda chat: chat.logits(),
    "answer": lambda chat: chat.answer,
    "interrupt": lambda chat: chat.interrupt(),
}


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Iterator[Model]:
    with loaded(tiny_path) as model:
        yield model


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """As in a program of one's own; a test runner may have another."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def cut(number: int, call: Callable[[], object]) -> bool:
    """Whether there was a place of this number."""
    was_cut = Cut(number, lambda: signal.raise_signal(signal.SIGINT)).run(call)
    gc.collect(0)
    return was_cut


def begin(model: Model, log: SessionLog | None) -> Session:
    """Some entries, and tokens that are not entered yet."""
    chat = model.session(ignore_eos=True, log=log, temperature=0.8, seed=3)
    chat.append("hello there, this is more than one page of tokens")
    chat.generate(5)
    chat.rollback(to=3)
    chat.inject("ab")
    chat.generate(3)
    return chat


def seen(chat: Session) -> Any:
    """All a user sees of a session but why the answer ended, which a verb may change first."""
    entries = [(entry.number, entry.parent, entry.verb, entry.text, entry.is_current) for entry in chat.history()]
    return chat.token_ids, chat.answer_ids, entries


@pytest.mark.parametrize("is_logged", [False, True])
@pytest.mark.parametrize("name", VERBS)
def test_a_verb_cut_short_was_or_was_not(model: Model, tmp_path: Path, name: str, is_logged: bool) -> None:
    log = SessionLog(tmp_path / "log") if is_logged else None
    with begin(model, log) as before, begin(model, log) as after:
        VERBS[name](after)
        allowed = [seen(before), seen(after)]
    number, is_place = 0, True
    while is_place:
        chat = begin(model, log)
        is_place = cut(number, lambda: VERBS[name](chat))  # noqa: B023
        assert_sound(model, chat, log, allowed, number)
        number += STEP[is_logged]
    if log is not None:
        log.close()


def assert_sound(model: Model, chat: Session, log: SessionLog | None, allowed: list[Any], number: int) -> None:
    now = seen(chat)
    assert now in allowed, number
    model.tree.check()
    if log is not None:
        names = [logged.id for logged in log.sessions() if not logged.parent]
        with model.restore(log, names[-1]) as restored:
            assert seen(restored) == now, number
    assert np.array_equal(chat.logits(), model.logits(now[0])[-1]), number
    chat.generate(2)
    chat.undo(2)
    chat.redo()
    assert np.array_equal(chat.logits(), model.logits(chat.token_ids)[-1]), number
    chat.close()
    model.tree.check()
    assert model.engine.scheduler.requests == []
    assert model.tree.pool.num_used == 0, number


@pytest.mark.parametrize("is_logged", [False, True])
def test_an_answer_cut_short_goes_on_as_it_would_have(model: Model, tmp_path: Path, is_logged: bool) -> None:
    log = SessionLog(tmp_path / "log") if is_logged else None
    with begin(model, log) as whole:
        whole.generate(25)
        expected = whole.token_ids
    number, is_place = 0, True
    while is_place:
        with begin(model, log) as chat, begin(model, log) as other:
            others = other.stream(max_tokens=25)
            next(others)
            is_place = cut(number, lambda: chat.generate(4))
            model.tree.check()
            chat.generate(len(expected) - len(chat.token_ids))
            assert chat.token_ids == expected, number
            assert len(list(others)) == 24, number
            assert other.token_ids == expected, number
        assert model.engine.scheduler.requests == []
        number += 13 * STEP[is_logged]
    model.tree.check()
    assert model.tree.pool.num_used == 0
    if log is not None:
        log.close()


def test_logits_and_generate_of_a_model_cut_short_leave_nothing(model: Model) -> None:
    ids = list(range(5, 45))
    expected = model.logits(ids)
    for call in (lambda: model.logits(ids), lambda: list(model.generate(ids, TWO)), lambda: model.session().close()):
        number, is_place = 0, True
        while is_place:
            is_place = cut(number, call)
            model.tree.check()
            assert model.tree.pool.num_used == 0, number
            assert model.engine.scheduler.requests == [], number
            number += 31
        assert np.array_equal(model.logits(ids), expected)
