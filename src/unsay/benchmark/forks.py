"""What a thousand forks of one context add to the process."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass
from time import perf_counter

from unsay.benchmark.contexts import computed
from unsay.benchmark.hardware import resident_bytes
from unsay.benchmark.timing import Timing, timing
from unsay.model import Model
from unsay.session.session import Session


@dataclass(frozen=True, slots=True)
class ForkResult:
    """added_bytes: growth of resident memory while all forks were made; allocated_bytes: what Python allocated for
    them, also out of memory it had; added_pages: KV pages they took."""

    context: int
    forks: int
    added_bytes: int
    allocated_bytes: int
    added_pages: int
    pages_of_context: int
    fork: Timing


def fork(model: Model, *, context: int, num_forks: int) -> ForkResult:
    """Fork a computed context `num_forks` times and keep all forks; once for the clock, once counting allocations."""
    pool = model.tree.pool
    with computed(model, context, 1) as session:
        session.fork().close()
        gc.collect()
        bytes_before, pages_before = resident_bytes(), pool.num_used
        children, seconds = _make(session, num_forks)
        added_bytes, added_pages = resident_bytes() - bytes_before, pool.num_used - pages_before
        _close(children)
        allocated_bytes = _allocated(session, num_forks)
    return ForkResult(context, num_forks, added_bytes, allocated_bytes, added_pages, pages_before, timing(seconds))


def _make(session: Session, num_forks: int) -> tuple[list[Session], list[float]]:
    """The forks, and the seconds each took."""
    children: list[Session] = []
    seconds: list[float] = []
    for _ in range(num_forks):
        started = perf_counter()
        children.append(session.fork())
        seconds.append(perf_counter() - started)
    return children, seconds


def _allocated(session: Session, num_forks: int) -> int:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        children, _ = _make(session, num_forks)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    _close(children)
    return after - before


def _close(sessions: list[Session]) -> None:
    for session in sessions:
        session.close()
