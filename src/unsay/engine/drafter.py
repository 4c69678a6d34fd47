"""Guesses at the tokens to come, for a step to compute along with the next one: what followed the last time.

    text    ... the old man and the  sea  ... and the        the last tokens stood there before: guess what followed
                        ------- =====         -------

The text is the context, and before it what a correction took back: an answer that goes on after one often says the same
again. A guess costs a row of a step and changes nothing: it stands only where it equals the token that is chosen there
(prompt lookup decoding, Saxena 2023; the equality is that of docs/numerics.md and of noise keyed by position).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

MAX_GUESSES = 7
_FIRST_GUESSES = 2
_MATCHES = (4, 3, 2)
"""How many last tokens must have stood there before, the most first."""
_LONGEST_PAUSE = 32


class Drafter:
    """For one answer. history: the list the engine appends to; dropped: ids that were taken back where it begins."""

    def __init__(self, history: list[int], dropped: Sequence[int] = ()) -> None:
        self._history = history
        self._text = array("i", dropped)
        self._num_read = 0
        self._num_guesses = _FIRST_GUESSES
        self._pause = 0
        self._num_wrong = 0

    def propose(self, most: int) -> list[int]:
        """Up to `most` ids that may follow the history; often none."""
        self._text.extend(self._history[self._num_read :])
        self._num_read = len(self._history)
        if self._pause or most <= 0:
            self._pause = max(0, self._pause - 1)
            return []
        place = self._last_place()
        return list(self._text[place : place + min(most, self._num_guesses)]) if place else []

    def learn(self, num_guessed: int, num_right: int) -> None:
        """How many of the last guesses stood: more are made after good ones, and none for a while after bad ones."""
        if num_right == num_guessed:
            self._num_guesses = min(2 * self._num_guesses, MAX_GUESSES)
        else:
            self._num_guesses = max(num_right, 1)
        self._num_wrong = self._num_wrong + 1 if num_right == 0 else 0
        self._pause = min((1 << self._num_wrong) - 1, _LONGEST_PAUSE)

    def _last_place(self) -> int:
        """Where in the text what followed the same last tokens begins; 0 if they are new."""
        for count in _MATCHES:
            place = _find_last(self._text, count)
            if place:
                return place
        return 0


def _find_last(text: array[int], count: int) -> int:
    """The place behind the last earlier occurrence of the last `count` ids; 0 for none."""
    size = text.itemsize
    data = text.tobytes()
    key = data[-count * size :]
    end = len(data) - size
    while (at := data.rfind(key, 0, end)) % size:
        if at < 0:
            return 0
        end = at + len(key) - 1
    return at // size + count
