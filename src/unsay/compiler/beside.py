"""Work in threads beside the one that waits for it, and that ends soon if that one gives up: at a Ctrl-C, say.

with Beside() as beside:
    code = beside.start(emit, step)         # in there, now and then: `look()`, or `with ended_by(process.kill):`
    pack(...)
    return code.result()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Beside:
    """Threads for the time of a block, which ends when they have; left by an exception, it tells them to."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor()
        self._lock = threading.Lock()
        self._ends: list[Callable[[], object]] = []
        self._is_over = False

    def __enter__(self) -> Beside:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._end()
        self._threads.shutdown()

    def start(self, work: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> Future[_T]:
        """Do it in a thread of its own."""

        def call() -> _T:
            _of_thread.beside = self
            return work(*args, **options)

        return self._threads.submit(call)

    def look(self) -> None:
        """Raise CancelledError if the block was left."""
        if self._is_over:
            raise CancelledError

    def add(self, end: Callable[[], object]) -> None:
        """Have it called if the block is left by an exception, or was."""
        with self._lock:
            self._ends.append(end)
            is_over = self._is_over
        if is_over:
            end()

    def remove(self, end: Callable[[], object]) -> None:
        """Not any more."""
        with self._lock:
            self._ends.remove(end)

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            ends = list(self._ends)
        for end in ends:
            end()


_of_thread = threading.local()


def look() -> None:
    """Raise CancelledError if nobody waits for what this thread does; work that takes long calls it on its way."""
    beside: Beside | None = getattr(_of_thread, "beside", None)
    if beside is not None:
        beside.look()


@contextmanager
def ended_by(end: Callable[[], object]) -> Generator[None]:
    """Inside, this thread may wait for something that `end`, called from another, makes it stop waiting for."""
    beside: Beside | None = getattr(_of_thread, "beside", None)
    if beside is None:
        yield
        return
    beside.add(end)
    try:
        yield
    finally:
        beside.remove(end)
