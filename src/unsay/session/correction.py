"""What a correction cost, in numbers, and what it left over."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple


class Correction(NamedTuple):
    """Figures of one correction. Times in seconds.

    num_kept: tokens of the context before the place; num_dropped: tokens taken back; num_injected: tokens put in.
    rollback_s: the calls of rollback. first_token_s: from the last call of the correction to the first new token;
    num_computed: tokens computed for it. Both None until that token is there.
    """

    num_kept: int
    num_dropped: int
    num_injected: int
    rollback_s: float
    first_token_s: float | None = None
    num_computed: int | None = None


class Corrections:
    """Follows the verbs of a correction: rollbacks and injections in any order, then the first token.

    The counts compare the context with the one the last token was delivered to: an injection taken back again is none.
    carry: what the last rollback left of a token before the place it was asked for; the next injection has it in front.
    """

    __slots__ = ("_counted", "_first_token", "_started", "carry")

    def __init__(self) -> None:
        self.carry = ""
        self._counted: tuple[int, int, int, float] | None = None
        self._first_token: tuple[float, int] | None = None
        self._started = 0.0

    @property
    def last(self) -> Correction | None:
        """The last one, as far as it has come; made when it is asked for, so that a rollback need not."""
        return None if self._counted is None else Correction(*self._counted, *(self._first_token or (None, None)))

    def rollback(self, num_kept: int, num_dropped: int, started: float, carry: str = "") -> None:
        """A rollback was done; it joins a correction no token has followed."""
        now = perf_counter()
        seconds = now - started
        if self._counted is not None and self._first_token is None:
            kept_before, dropped, _, before_s = self._counted
            kept = min(num_kept, kept_before)
            self._counted = (kept, dropped + kept_before - kept, num_kept - kept, before_s + seconds)
        else:
            self._counted = (num_kept, num_dropped, 0, seconds)
        self.carry, self._started, self._first_token = carry, now, None

    def forget(self) -> None:
        """Another verb came: what was corrected without a token since is no correction of an answer."""
        self.carry = ""
        if self._first_token is None:
            self._counted = None

    def inject(self, num_kept: int, num_injected: int, started: float) -> None:
        """An injection was done; it joins a rollback no token has followed."""
        self.carry = ""
        if self._counted is None or self._first_token is not None:
            self._counted = (num_kept, 0, 0, 0.0)
        kept, dropped, injected, rollback_s = self._counted
        self._counted = (kept, dropped, injected + num_injected, rollback_s)
        self._started, self._first_token = started, None

    def first_token(self, num_computed: int) -> None:
        """A token was delivered."""
        self.carry = ""
        if self._first_token is None and self._counted is not None:
            self._first_token = (perf_counter() - self._started, num_computed)
