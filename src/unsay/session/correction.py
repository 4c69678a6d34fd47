"""What a correction cost, in numbers."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple


class Correction(NamedTuple):
    """Figures of one correction. Times in seconds.

    num_kept: tokens of the context before the place; num_dropped: tokens taken back; num_injected: tokens put in.
    rollback_s: the calls of rollback. first_token_s: from the last call of the correction to the first new token;
    num_computed: tokens computed for it. Both None until that token is there.
    A named tuple, since making it is part of every rollback: a frozen dataclass takes four times as long to make.
    """

    num_kept: int
    num_dropped: int
    num_injected: int
    rollback_s: float
    first_token_s: float | None = None
    num_computed: int | None = None


class Stopwatch:
    """Follows the verbs of a correction: rollbacks and injections in any order, then the first token.

    The counts compare the context with the one the last token was delivered to: an injection taken back again is none.
    """

    def __init__(self) -> None:
        self.correction: Correction | None = None
        self._started = 0.0
        self._is_running = False

    def rollback(self, num_kept: int, num_dropped: int, seconds: float) -> None:
        """A rollback was done; it joins a correction no token has followed."""
        before = self.correction
        if before is not None and self._is_running:
            kept = min(num_kept, before.num_kept)
            dropped = before.num_dropped + before.num_kept - kept
            self.correction = Correction(kept, dropped, num_kept - kept, before.rollback_s + seconds)
        else:
            self.correction = Correction(num_kept, num_dropped, 0, seconds)
        self._start()

    def forget(self) -> None:
        """Another verb came before the first token: what was corrected until then is no correction of an answer."""
        if self._is_running:
            self.correction = None
            self._is_running = False

    def inject(self, num_kept: int, num_injected: int, started: float) -> None:
        """An injection was done; it joins a rollback no token has followed."""
        if self.correction is None or not self._is_running:
            self.correction = Correction(num_kept, 0, 0, 0.0)
        total = self.correction.num_injected + num_injected
        self.correction = self.correction._replace(num_injected=total)
        self._start(started)

    def first_token(self, num_computed: int) -> None:
        """A token was delivered."""
        if self._is_running and self.correction is not None:
            first_token_s = perf_counter() - self._started
            self.correction = self.correction._replace(first_token_s=first_token_s, num_computed=num_computed)
            self._is_running = False

    def _start(self, started: float | None = None) -> None:
        self._started = perf_counter() if started is None else started
        self._is_running = True
