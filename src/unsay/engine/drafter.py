"""Guesses at the tokens to come, for a step to compute along with the next one: what followed the last time.

    text    ... the old man and the  sea  ... and the        the last tokens stood there before: guess what followed
                        ------- =====         -------

The text is the context, and before it what a correction took back: an answer that goes on after one often says the same
again. A guess costs a row of a step and changes nothing: it stands only where it equals the token that is chosen there
(prompt lookup decoding, Saxena 2023; the equality is that of docs/numerics.md and of noise keyed by position).

The more of the last tokens stood there before, the likelier the next one follows, and the one after it. So the number
of guesses depends on the length of the match alone (docs/decisions/007), and an answer that leaves the text and comes
back to it is followed at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsay.core import Int32Array

MAX_GUESSES = 7
_LONGEST = 5
"""Tokens of a match that count."""
_WRONG_IN_A_ROW = 8
_PAUSE = 16
"""Steps without guesses after that many that were all wrong: the text repeats itself in a way that does not help."""


class Drafter:
    """For one answer. history: the list the engine appends to; dropped: ids that were taken back where it begins."""

    def __init__(self, history: list[int], dropped: Sequence[int] = ()) -> None:
        self._history = history
        self._num_read = 0
        self._text: Int32Array = np.array([*range(-_LONGEST, 0), *dropped], np.int32)
        self._size = self._text.size
        self._num_wrong = 0
        self._pause = 0

    def propose(self, most: int) -> list[int]:
        """Up to `most` ids that may follow the history; often none."""
        self._read()
        if self._pause or most <= 0:
            self._pause = max(0, self._pause - 1)
            return []
        text = self._text[: self._size]
        places = np.flatnonzero(text[:-1] == text[-1]) + 1
        if not places.size:
            return []
        matched, place = _longest_match(text, places)
        count = min(2 * matched - 3, MAX_GUESSES) if matched > 1 else int((text[places] == text[place]).all())
        return text[place : place + min(most, count)].tolist()

    def learn(self, num_right: int) -> None:
        """How many of the last guesses stood."""
        self._num_wrong = 0 if num_right else self._num_wrong + 1
        if self._num_wrong == _WRONG_IN_A_ROW:
            self._num_wrong, self._pause = 0, _PAUSE

    def _read(self) -> None:
        """Add what is new in the history to the text."""
        new = self._history[self._num_read :]
        end = self._size + len(new)
        if end > self._text.size:
            self._text = np.concatenate([self._text[: self._size], np.empty(end, np.int32)])
        self._text[self._size : end] = new
        self._size, self._num_read = end, len(self._history)


def _longest_match(text: Int32Array, places: np.ndarray) -> tuple[int, int]:
    """How many last tokens of the text stood before the latest of the places where most did, and that place.

    places: where what followed the last token begins, ascending. The text begins with as many ids that no token has.
    """
    for matched in range(1, _LONGEST):
        longer = places[text[places - 1 - matched] == text[-1 - matched]]
        if not longer.size:
            return matched, int(places[-1])
        places = longer
    return _LONGEST, int(places[-1])
