"""An answer made on a thread of its own, so that the terminal can listen meanwhile."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from unsay.errors import UnsayError

if TYPE_CHECKING:
    from unsay.core import TokenEvent
    from unsay.session.session import Session


class Generation:
    """Starts at once; `wake` is called from its thread for each event and at the end."""

    def __init__(self, session: Session, wake: Callable[[], None]) -> None:
        self._session = session
        self._wake = wake
        self._events: queue.SimpleQueue[TokenEvent] = queue.SimpleQueue()
        self._error: UnsayError | None = None
        self._thread = threading.Thread(target=self._make, name="unsay-answer")
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether no more events come; those made before may still be taken."""
        return not self._thread.is_alive()

    def take(self) -> list[TokenEvent]:
        """The events that came since the last call. Raises what ended the answer, if something did."""
        is_over = self.is_over
        events: list[TokenEvent] = []
        while not self._events.empty():
            events.append(self._events.get())
        if is_over and not events and self._error is not None:
            raise self._error
        return events

    def stop(self) -> float:
        """Stop inside the token; returns the seconds it took. The session is free afterwards."""
        start = time.perf_counter()
        while self._thread.is_alive() and not self._session.interrupt():
            self._thread.join(0.001)  # it has not begun, or is just ending
        seconds = time.perf_counter() - start
        self._thread.join()
        return seconds

    def _make(self) -> None:
        try:
            for event in self._session.stream():
                self._events.put(event)
                self._wake()
        except UnsayError as error:
            self._error = error
        finally:
            self._wake()
