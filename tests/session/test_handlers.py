"""A signal handler that stops a session, at every place of every verb: it waits for nothing its own thread holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.cuts import Cut
from tests.models import loaded
from unsay import Model, SamplingParams, Session
from unsay.session.log import SessionLog

STEP = 41
"""Every how many-th place is tried; the places of one verb are some hundreds."""


def take_back(chat: Session) -> None:
    chat.rollback(to=1)
    chat.inject("no")
    chat.undo()
    chat.redo()
    chat.checkout(1)


def look(chat: Session) -> None:
    chat.history()
    chat.diff()
    chat.fork().close()
    assert chat.answer or chat.token_ids


VERBS: dict[str, Callable[[Session], object]] = {
    "stream": lambda chat: None,
    "take back": take_back,
    "look": look,
    "logits": lambda chat: chat.logits(),
    "append": lambda chat: chat.append("and"),
    "generate": lambda chat: chat.generate(2),
}


@pytest.fixture(scope="module")
def model(tiny_path: Path) -> Iterator[Model]:
    with loaded(tiny_path) as model:
        yield model


def talk(chat: Session, verb: Callable[[Session], object]) -> None:
    """An answer with a verb in the middle of it."""
    for event in chat.stream(max_tokens=4):
        if event.index == 1:
            verb(chat)


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("is_logged", [False, True])
def test_a_handler_stops_this_session_and_another_threads(
    model: Model, tmp_path: Path, name: str, is_logged: bool
) -> None:
    number, num_places = 0, 1
    log = SessionLog(tmp_path / "log") if is_logged else None
    while number < num_places:
        with model.session(ignore_eos=True, log=log) as chat, model.session(ignore_eos=True, log=log) as other:
            chat.append("hello there")
            other.append("hello")
            started = threading.Event()
            reader = threading.Thread(target=read, args=(other, started))
            reader.start()
            started.wait()
            said: list[bool] = []
            cut = Cut(number, lambda: said.extend([other.interrupt(), chat.interrupt()]))  # noqa: B023
            assert not cut.run(lambda: talk(chat, VERBS[name]))
            assert (said or [other.interrupt()])[0], "the other one streams all the time"
            other.rollback(to=0)
            reader.join(60)
            assert not reader.is_alive()
            chat.append("free")
            assert np.array_equal(chat.logits(), model.logits(chat.token_ids)[-1]), number
        num_places, number = cut.num_passed, number + STEP
    assert model.engine.scheduler.requests == []
    model.tree.check()
    assert model.tree.pool.num_used == 0
    if log is not None:
        log.close()


def read(chat: Session, started: threading.Event) -> None:
    for _ in chat.stream(max_tokens=10_000):
        started.set()
        if chat.answer_ids[200:]:
            chat.rollback(to=0)


def test_a_stop_waits_for_no_logits(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's thread computes logits, and they take until the stop has returned."""
    stopped, computing = threading.Event(), threading.Event()
    run = model.engine.machine.run

    def slow(batch):
        computing.set()
        assert stopped.wait(60)
        return run(batch)

    with model.session(ignore_eos=True) as chat:
        chat.append("hello there")
        got: list[np.ndarray] = []

        def loop() -> None:
            for _ in chat.stream(max_tokens=9):
                monkeypatch.setattr(model.engine.machine, "run", slow)
                got.append(chat.logits())

        thread = threading.Thread(target=loop)
        thread.start()
        assert computing.wait(60)
        assert chat.interrupt()
        ids = chat.token_ids
        chat.rollback(to=0)
        stopped.set()
        thread.join(60)
        assert len(got) == 1
        assert np.array_equal(got[0], model.logits(ids)[-1])
        assert chat.finish is None
        chat.append("again")
        assert np.array_equal(chat.logits(), model.logits(chat.token_ids)[-1])


def test_a_verb_may_end_what_a_handler_stopped(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler came into code that may hold locks, and the loop it stopped is long at its own work."""
    started, go = threading.Event(), threading.Event()
    with model.session(ignore_eos=True) as chat:
        chat.append("hello there")

        def loop() -> None:
            for _ in chat.stream(max_tokens=9):
                started.set()
                go.wait(60)

        thread = threading.Thread(target=loop)
        thread.start()
        started.wait(60)
        step = model.engine.step

        def interrupted():
            monkeypatch.undo()
            assert chat.interrupt()
            return step()

        monkeypatch.setattr(model.engine, "step", interrupted)
        list(model.generate([5, 6, 7], SamplingParams(max_tokens=3)))
        chat.append("taken over")
        assert chat.history()[-2].verb == "answer"
        go.set()
        thread.join(60)
        assert not thread.is_alive()
