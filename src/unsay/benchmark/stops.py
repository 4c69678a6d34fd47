"""What it costs to stop an answer from another thread, and what of that is not the library's."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from time import perf_counter, sleep
from typing import NamedTuple

from unsay.benchmark.contexts import prompt
from unsay.benchmark.timing import Timing, timing
from unsay.model import Model
from unsay.session.session import Session

_UNREAD_TOKENS = 512
"""Prompt tokens that an interrupt comes into: one step of the engine."""

_NOT_BEGUN_S = 0.005
"""How long to give a reader that was not running yet before trying to stop it again."""

_TIMED_TOKENS = 16
"""Tokens whose mean is the time of one."""


class Stops(NamedTuple):
    """From the call of interrupt() in another thread.

    stop: to its return, when the session is free and machine code is told to stop. taken_back: to the return of
    a rollback made right behind it, which is the first to need what the stop left to be done. ended: until the stopped
    loop had ended in its own thread, which has to get the processor for it.
    """

    stop: Timing
    taken_back: Timing
    ended: Timing


def stops_in_decode(session: Session, samples: int) -> Stops:
    """Each at a random moment of the time that the third and fourth token of an answer take."""
    moments = _moments_in_decode(session, samples)
    return _timings([_stop(session, moment) for moment in moments])


def stops_in_prefill(model: Model, context: int, samples: int) -> Stops:
    """Each at a random moment of the first third of the time that the last tokens of the prompt take: all layers do
    the same, and the sooner the stop, the more samples."""
    with prompt(model, context, _UNREAD_TOKENS, temperature=0.0) as unread:
        whole_s = _prefill_seconds(unread)
        draws = random.Random(2)
        return _timings([_stop_fork(unread, whole_s * (0.03 + 0.3 * draws.random())) for _ in range(samples)])


def cold_calls(session: Session, samples: int) -> Timing:
    """Three calls of Python, one in the other, that nothing else makes, where `stops_in_decode` has its stops.

    Three are what interrupt() makes: so much of it is the interpreter's, which a step has pushed out of the caches, and
    the machine's.
    """
    return timing([_call_beside(session, moment) for moment in _moments_in_decode(session, samples)])


def _moments_in_decode(session: Session, samples: int) -> list[float]:
    token_s, draws = _mean_token(session), random.Random(1)
    return [(2 + 2 * draws.random()) * token_s for _ in range(samples)]


def _timings(samples: Sequence[tuple[float, float, float]]) -> Stops:
    return Stops(*(timing(seconds) for seconds in zip(*samples, strict=True)))


def _stop_fork(unread: Session, after_s: float) -> tuple[float, float, float]:
    """In a fork of its own, so that the prompt stays unread."""
    with unread.fork() as session:
        return _stop(session, after_s)


def _stop(session: Session, after_s: float) -> tuple[float, float, float]:
    """Seconds of `Stops`, of an interrupt() `after_s` into an answer. What the answer added is taken back."""
    num_before = len(session.answer_ids)
    ended = 0.0

    def read() -> None:
        nonlocal ended
        session.generate(10**6)
        ended = perf_counter()

    reader = threading.Thread(target=read)
    reader.start()
    sleep(after_s)
    while True:
        started = perf_counter()
        is_stopped = session.interrupt()
        stopped = perf_counter()
        if is_stopped:
            break
        reader.join(_NOT_BEGUN_S)
    session.rollback(to=num_before)
    taken_back = perf_counter()
    reader.join()
    return stopped - started, taken_back - started, ended - started


def _call_beside(session: Session, after_s: float) -> float:
    """Seconds of the calls, `after_s` into an answer, which is stopped and taken back."""
    num_before = len(session.answer_ids)
    reader = threading.Thread(target=session.generate, args=(10**6,))
    reader.start()
    sleep(after_s)
    started = perf_counter()
    _first()
    seconds = perf_counter() - started
    while not session.interrupt():
        reader.join(_NOT_BEGUN_S)
    session.rollback(to=num_before)
    reader.join()
    return seconds


def _first() -> int:
    return _second() + 1


def _second() -> int:
    return _third() + 1


def _third() -> int:
    return 1


def _mean_token(session: Session) -> float:
    """Seconds a token takes, guesses that were right included; the answer is as before afterwards."""
    num_before = len(session.answer_ids)
    stream = session.stream(max_tokens=_TIMED_TOKENS + 1)
    next(stream)
    started = perf_counter()
    num_timed = sum(1 for _ in stream)
    seconds = perf_counter() - started
    session.rollback(to=num_before)
    return seconds / num_timed


def _prefill_seconds(unread: Session) -> float:
    with unread.fork() as session:
        started = perf_counter()
        session.generate(max_tokens=1)
        return perf_counter() - started
