"""What a correction costs: stopping, rolling back, forking, and the first token after an injection.

Every sample is one call of the public API, as the user's program would make it: code and data are warm only as far as
the calls before made them so, and the garbage collector runs as it does for users.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from time import perf_counter

from unsay.benchmark.contexts import computed
from unsay.benchmark.stops import cold_calls, stops_in_decode, stops_in_prefill
from unsay.benchmark.timing import Timing, timing
from unsay.model import Model
from unsay.session.correction import Correction
from unsay.session.session import Session

_ANSWER_TOKENS = 64
_CALLS_PER_SAMPLE = 10
"""Rollbacks and forks for every sample asked for: they take microseconds, and a p99 wants many."""

_INJECTION = " No, wait: a smaller tool is enough for that. Use"


@dataclass(frozen=True, slots=True)
class CorrectResult:
    """Figures for contexts of `context` tokens.

    stop_*, taken_back_*, ended_*: see `benchmark.stops.Stops`, in the middle of decoding and of reading a prompt.
    cold_calls: three calls of Python that do nothing, where the stops in decoding were.
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
    taken_back_decode: Timing
    taken_back_prefill: Timing
    ended_decode: Timing
    ended_prefill: Timing
    cold_calls: Timing
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
        decode, floor = stops_in_decode(session, samples), cold_calls(session, samples)
        rollback, fork = rollbacks(session, samples), forks(session, samples)
        rollback_in_stream, fork_in_stream = rollbacks_in_stream(session, samples), forks_in_stream(session, samples)
        first_token = _injections(session, samples)
    prefill = stops_in_prefill(model, context, samples)
    corrections = first_token[1]
    return CorrectResult(
        context=context,
        stop_decode=decode.stop,
        stop_prefill=prefill.stop,
        taken_back_decode=decode.taken_back,
        taken_back_prefill=prefill.taken_back,
        ended_decode=decode.ended,
        ended_prefill=prefill.ended,
        cold_calls=floor,
        rollback=rollback,
        fork=fork,
        rollback_in_stream=rollback_in_stream,
        fork_in_stream=fork_in_stream,
        inject_to_token=first_token[0],
        injected=max(correction.num_injected for correction in corrections),
        computed=max(correction.num_computed or 0 for correction in corrections),
        load=os.getloadavg()[0],
    )


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
