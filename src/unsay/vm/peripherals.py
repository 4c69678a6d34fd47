"""What a program can sense: user input, voice activity, a timer, a guard.

Each is a queue of records. Whoever has news posts it, from any thread; SENSE takes the oldest, or nothing, and never
waits. When every context has nothing to do but look, the machine sleeps until something is posted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from unsay.isa.opcodes import Peripheral
from unsay.vm.context import check_token_ids
from unsay.vm.records import NO_TARGET, Record


class Peripherals:
    """The four queues. `clock` gives seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._queues: dict[Peripheral, deque[Record]] = {peripheral: deque() for peripheral in Peripheral}
        self._news = threading.Condition()
        self._clock = clock
        self._period_s = 0.0
        self._due = 0.0
        self._is_closed = False

    def post(self, peripheral: Peripheral, token_ids: Sequence[int] = (), target: int = NO_TARGET) -> None:
        """Put a record into a queue. With a target it is a correction: "go back to there, then say this"."""
        record = Record(target, tuple(check_token_ids(token_ids)))
        with self._news:
            self._queues[peripheral].append(record)
            self._news.notify_all()

    def set_timer(self, period_s: float) -> None:
        """Let TIMER have an empty record every `period_s` seconds from now on; 0 stops it."""
        assert period_s >= 0, period_s
        with self._news:
            self._period_s = period_s
            self._due = self._clock() + period_s
            self._news.notify_all()

    def close(self) -> None:
        """Nothing more will be posted: a program that waits for it is stopped."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether nothing can come any more."""
        with self._news:
            return self._is_closed and not self._period_s and not self._any()

    def take(self, peripheral: Peripheral) -> Record | None:
        """The oldest record of a queue, or None; does not wait."""
        with self._news:
            self._tick()
            queue = self._queues[peripheral]
            return queue.popleft() if queue else None

    def wait(self, timeout_s: float) -> bool:
        """Sleep until something can be taken, at most `timeout_s`; whether there is something."""
        with self._news:
            self._tick()
            if not self._any() and not self._is_closed:
                until_due = max(0.0, self._due - self._clock()) if self._period_s else timeout_s
                self._news.wait(min(timeout_s, until_due))
                self._tick()
            return self._any()

    def _any(self) -> bool:
        return any(self._queues.values())

    def _tick(self) -> None:
        """Turn a timer that is due into a record; periods missed are not made up for."""
        now = self._clock()
        if self._period_s and now >= self._due:
            self._queues[Peripheral.TIMER].append(Record(NO_TARGET, ()))
            self._due = now + self._period_s
