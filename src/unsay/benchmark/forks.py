"""What a thousand forks of one context add to the process."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter

from unsay.benchmark.contexts import computed
from unsay.benchmark.hardware import resident_bytes
from unsay.benchmark.timing import Timing, timing
from unsay.model import Model
from unsay.session.session import Session


@dataclass(frozen=True, slots=True)
class ForkResult:
    """added_bytes: growth of resident memory over all forks; added_pages: KV pages taken by them."""

    context: int
    forks: int
    added_bytes: int
    added_pages: int
    pages_of_context: int
    fork: Timing


def fork(model: Model, *, context: int, num_forks: int) -> ForkResult:
    """Fork a computed context `num_forks` times and keep all forks."""
    pool = model.tree.pool
    with computed(model, context, 1) as session:
        session.fork().close()
        gc.collect()
        bytes_before, pages_before = resident_bytes(), pool.num_used
        seconds: list[float] = []
        children: list[Session] = []
        for _ in range(num_forks):
            started = perf_counter()
            children.append(session.fork())
            seconds.append(perf_counter() - started)
        added_bytes, added_pages = resident_bytes() - bytes_before, pool.num_used - pages_before
        for child in children:
            child.close()
    return ForkResult(context, num_forks, added_bytes, added_pages, pages_before, timing(seconds))
