"""What a correction costs: stopping, rolling back, forking, and the first token after an injection.

Every sample is one call of the public API, as the user's program would make it: code and data are warm only as far as
the calls before made them so, and the garbage collector runs as it does for users.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, sleep

from unsay.benchmark.contexts import computed, prompt
from unsay.benchmark.timing import Timing, timing
from unsay.model import Model
from unsay.session.correction import Correction
from unsay.session.session import Session

_ANSWER_TOKENS = 64
_UNREAD_TOKENS = 512
"""Prompt tokens that an interrupt comes into: one step of the engine."""

_CALLS_PER_SAMPLE = 10
"""Rollbacks and forks for every sample asked for: they take microseconds, and a p99 wants many."""

_NOT_BEGUN_S = 0.005
"""How long to give a reader that was not running yet before trying to stop it again."""

_TIMED_TOKENS = 16
"""Tokens whose mean is the time of one."""

_INJECTION = " No, wait: a smaller tool is enough for that. Use"


@dataclass(frozen=True, slots=True)
class CorrectResult:
    """Figures for contexts of `context` tokens.

    stop_*: from the call of interrupt() in another thread to its return, when the session is free again: in the
    middle of decoding, and in the first third of reading the last 512 tokens of a prompt. ended_*: from the same call
    until the stopped loop had ended in its own thread, which has to get the processor for it.
    rollback, fork: calls one after the other. *_in_stream: between two events of a stream, as a program makes them that
    looks at each token: a step has just read all weights and pushed the code of the call out of the caches.
    injected and computed: tokens put in by each correction, and tokens computed until the first new one was there, the
    most of all samples.
    load: processes that wanted to run during the last minute of measuring; beyond about one, the times are those of a
    busy machine.
    """

    context: int
    stop_decode: Timing
    stop_prefill: Timing
    ended_decode: Timing
    ended_prefill: Timing
    rollback: Timing
    fork: Timing
    rollback_in_stream: Timing
    fork_in_stream: Timing
    inject_to_token: Timing
    injected: int
    computed: int
    load: float


def correct(model: Model, *, context: int, samples: int) -> CorrectResult:
    """Measure `samples` corrections of each kind on a context of `context` tokens."""
    with computed(model, context, _ANSWER_TOKENS, temperature=0.0) as session:
        stop_decode, ended_decode = stops_in_decode(session, samples)
        rollback, fork = rollbacks(session, samples), forks(session, samples)
        rollback_in_stream, fork_in_stream = rollbacks_in_stream(session, samples), forks_in_stream(session, samples)
        first_token = _injections(session, samples)
    stop_prefill, ended_prefill = stops_in_prefill(model, context, samples)
    corrections = first_token[1]
    return CorrectResult(
        context=context,
        stop_decode=stop_decode,
        stop_prefill=stop_prefill,
        ended_decode=ended_decode,
        ended_prefill=ended_prefill,
        rollback=rollback,
        fork=fork,
        rollback_in_stream=rollback_in_stream,
        fork_in_stream=fork_in_stream,
        inject_to_token=first_token[0],
        injected=max(correction.num_injected for correction in corrections),
        computed=max(correction.num_computed or 0 for correction in corrections),
        load=os.getloadavg()[0],
    )


def stops_in_decode(session: Session, samples: int) -> tuple[Timing, Timing]:
    """Each at a random moment of the time that the third and fourth token of an answer take."""
    token_s = _mean_token(session)
    draws = random.Random(1)
    return _timings([_stop(session, (2 + 2 * draws.random()) * token_s) for _ in range(samples)])


def stops_in_prefill(model: Model, context: int, samples: int) -> tuple[Timing, Timing]:
    """Each at a random moment of the first third of the time that the last tokens of the prompt take: all layers do
    the same, and the sooner the stop, the more samples."""
    with prompt(model, context, _UNREAD_TOKENS, temperature=0.0) as unread:
        whole_s = _prefill_seconds(unread)
        draws = random.Random(2)
        return _timings([_stop_fork(unread, whole_s * (0.03 + 0.3 * draws.random())) for _ in range(samples)])


def _timings(pairs: Sequence[tuple[float, float]]) -> tuple[Timing, Timing]:
    first, second = zip(*pairs, strict=True)
    return timing(list(first)), timing(list(second))


def _stop_fork(unread: Session, after_s: float) -> tuple[float, float]:
    """In a fork of its own, so that the prompt stays unread."""
    with unread.fork() as session:
        return _stop(session, after_s)


def _stop(session: Session, after_s: float) -> tuple[float, float]:
    """Seconds from interrupt(), `after_s` into an answer, to its return and to the end of the stopped loop.

    What the answer added is taken back.
    """
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
        seconds = perf_counter() - started
        reader.join(None if is_stopped else _NOT_BEGUN_S)
        if not reader.is_alive():
            break
    session.rollback(to=num_before)
    return seconds, ended - started


def rollbacks(session: Session, samples: int) -> Timing:
    """To anywhere in the answer, each in a fork of its own. Forks and the lists of their ids, which a session that
    streams has, are made ten a sample before the clock: a list of 8000 takes the caches from the call behind it."""
    draws = random.Random(3)
    seconds: list[float] = []
    for _ in range(samples):
        children = [session.fork() for _ in range(_CALLS_PER_SAMPLE)]
        targets = [draws.randrange(len(child.answer_ids)) for child in children]
        for child, target in zip(children, targets, strict=True):
            started = perf_counter()
            child.rollback(to=target)
            seconds.append(perf_counter() - started)
        for child in children:
            child.close()
    return timing(seconds)


def forks(session: Session, samples: int) -> Timing:
    """Ten for a sample."""
    return timing([_fork(session) for _ in range(samples * _CALLS_PER_SAMPLE)])


def rollbacks_in_stream(session: Session, samples: int) -> Timing:
    """To anywhere in the answer, in the loop over a stream."""
    draws = random.Random(4)
    seconds: list[float] = []
    for _ in range(samples):
        with session.fork() as child:
            target = draws.randrange(len(child.answer_ids))
            for _ in child.stream(max_tokens=1):
                started = perf_counter()
                child.rollback(to=target)
                seconds.append(perf_counter() - started)
    return timing(seconds)


def forks_in_stream(session: Session, samples: int) -> Timing:
    """In the loop over a stream."""
    seconds: list[float] = []
    for _ in range(samples):
        with session.fork() as child:
            seconds += [_fork(child) for _ in child.stream(max_tokens=1)]
    return timing(seconds)


def _fork(session: Session) -> float:
    """Seconds of a fork, which is closed after that."""
    started = perf_counter()
    child = session.fork()
    seconds = perf_counter() - started
    child.close()
    return seconds


def _injections(session: Session, samples: int) -> tuple[Timing, list[Correction]]:
    """From the call of inject() to the first new token in hand, after a rollback to the middle of a page."""
    corrections: list[Correction] = []
    seconds: list[float] = []
    session.rollback(to=0)
    session.generate(max_tokens=_ANSWER_TOKENS)
    for sample in range(samples):
        with session.fork() as child:
            child.rollback(to=_ANSWER_TOKENS // 4 + sample % (_ANSWER_TOKENS // 2))
            started = perf_counter()
            child.inject(_INJECTION)
            next(child.stream(max_tokens=1))
            seconds.append(perf_counter() - started)
            assert child.correction is not None
            corrections.append(child.correction)
    return timing(seconds), corrections


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
