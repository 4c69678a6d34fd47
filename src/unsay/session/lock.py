"""The lock of a session whose verbs are logged: a verb is in the log and in memory, or in neither."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from threading import RLock, get_ident, main_thread
from types import FrameType
from typing import Any


class HoldingLock:
    """Holds Ctrl-C back while the main thread has the lock, and lets it come when it leaves.

    Between a write and what follows it in memory lies no instruction that could be made the only one. It costs two
    calls of `signal.signal`, some microseconds, where a write costs milliseconds. plain: the same lock without that.
    Only SIGINT is held, and only from a handler of Python's: what another handler raises may still come between.
    """

    def __init__(self) -> None:
        self.plain = RLock()
        self._depth = 0
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._is_due = False

    def __enter__(self) -> None:
        if get_ident() == main_thread().ident:
            if not self._depth:
                self._hold()
            self._depth += 1
        self.plain.acquire()

    def __exit__(self, *error: object) -> None:
        self.plain.release()
        if get_ident() == main_thread().ident:
            self._depth -= 1
            if not self._depth:
                self._give_back()

    def _hold(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        self._handler, self._is_due = (handler if callable(handler) else None), False
        if self._handler is not None:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._is_due = True

    def _give_back(self) -> None:
        """Unless somebody has put another handler there meanwhile."""
        handler = self._handler
        if handler is not None and signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, handler)
            if self._is_due:
                handler(signal.SIGINT, sys._getframe())  # pyright: ignore[reportPrivateUsage]
