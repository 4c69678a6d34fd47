"""Ctrl-C in the thread that streams: a handler may stop the session, wherever it comes, and whoever else does too."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from unsay import Model, SamplingParams, Session
from unsay.engine.request import Request
from unsay.errors import RequestError

ROUNDS = 60


@contextmanager
def on_alarm(handler: Callable[[], object]) -> Iterator[None]:
    """Call it in this, the main thread, when `signal.setitimer` says so: in processor time, whose signal is ours."""

    def called(number: int, frame: FrameType | None) -> None:
        handler()

    before = signal.signal(signal.SIGVTALRM, called)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.fixture
def chat(model: Model) -> Iterator[Session]:
    with model.session(ignore_eos=True) as chat:
        chat.append("hello there")
        yield chat


def stream(chat: Session, seconds: float) -> None:
    """With an alarm after so many seconds, far fewer than it takes."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    for _ in chat.stream(max_tokens=400):
        pass


def test_a_handler_and_another_thread_stop_the_same_session_at_once(chat: Session) -> None:
    """Each of them waits for a step of this thread, which runs the handler: neither may wait for the other."""
    draws = random.Random(5)
    with on_alarm(chat.interrupt):
        for _ in range(ROUNDS):
            seconds = draws.uniform(1e-3, 8e-3)
            other = threading.Timer(seconds, chat.interrupt)
            other.start()
            stream(chat, seconds)
            other.join(60)
            assert not other.is_alive()
            assert chat.finish == "interrupt"
            chat.rollback(to=0)


def test_a_handler_stops_the_session_of_another_thread_too(model: Model, chat: Session) -> None:
    draws = random.Random(6)
    with model.session(ignore_eos=True) as other, on_alarm(lambda: (other.interrupt(), chat.interrupt())):
        other.append("hello")
        for _ in range(ROUNDS // 3):
            reader = threading.Thread(target=lambda: list(other.stream(max_tokens=400)))
            reader.start()
            stream(chat, draws.uniform(5e-3, 1e-2))
            other.interrupt()
            reader.join(60)
            assert not reader.is_alive()
            chat.rollback(to=0)
            other.rollback(to=0)


@pytest.mark.parametrize("place", ["scheduler.next_batch", "machine.run", "sampler.sample", "scheduler.commit"])
def test_a_keyboard_interrupt_in_a_step_leaves_the_model_to_others(
    model: Model, chat: Session, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def interrupted(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    owner, method = place.split(".")
    monkeypatch.setattr(getattr(model.engine, owner), method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(chat.stream(max_tokens=9))
    reader = threading.Thread(target=lambda: list(model.generate([5, 6, 7], SamplingParams(max_tokens=3))))
    reader.start()
    reader.join(60)
    assert not reader.is_alive(), "the model is locked"
    assert len(list(chat.stream(max_tokens=9))) == 9


def test_a_verb_in_a_handler_that_would_wait_for_itself_is_refused(
    model: Model, chat: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, refused = model.engine.machine.run, []

    def inside(batch):
        with pytest.raises(RequestError, match="signal handler"):
            model.close()
        refused.append(True)
        monkeypatch.undo()
        return run(batch)

    monkeypatch.setattr(model.engine.machine, "run", inside)
    assert len(list(chat.stream(max_tokens=3))) == 3
    assert refused


def test_a_keyboard_interrupt_before_the_first_step_leaves_no_request(
    model: Model, chat: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = model.engine.submit

    def interrupted(request: Request) -> None:
        submit(request)
        raise KeyboardInterrupt

    monkeypatch.setattr(model.engine, "submit", interrupted)
    for stream in (chat.stream(max_tokens=9), model.generate([5, 6, 7], SamplingParams(max_tokens=3))):
        with pytest.raises(KeyboardInterrupt):
            list(stream)
    monkeypatch.undo()
    assert model.engine.scheduler.requests == []
    assert len(list(chat.stream(max_tokens=9))) == 9
