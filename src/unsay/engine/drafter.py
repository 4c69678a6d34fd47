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

from collections.abc import Iterable, Sequence

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
        self._text = list(range(-_LONGEST, 0))
        self._followers: dict[int, list[int]] = {}
        self._read(dropped)
        self._num_wrong = 0
        self._pause = 0

    def propose(self, most: int) -> list[int]:
        """Up to `most` ids that may follow the history; often none."""
        self._read(self._history[self._num_read :])
        self._num_read = len(self._history)
        if self._pause or most <= 0:
            self._pause = max(0, self._pause - 1)
            return []
        text = self._text
        places = self._followers.get(text[-1], [])[:-1]
        if not places:
            return []
        matched, place = _longest_match(text, places)
        count = min(2 * matched - 3, MAX_GUESSES) if matched > 1 else int(len({text[at] for at in places}) == 1)
        return text[place : place + min(most, count)]

    def learn(self, num_right: int) -> None:
        """How many of the last guesses stood."""
        self._num_wrong = 0 if num_right else self._num_wrong + 1
        if self._num_wrong == _WRONG_IN_A_ROW:
            self._num_wrong, self._pause = 0, _PAUSE

    def _read(self, new: Iterable[int]) -> None:
        """Add ids to the text, and to each token's places where what follows it begins."""
        text, followers = self._text, self._followers
        for token in new:
            text.append(token)
            followers.setdefault(token, []).append(len(text))


def _longest_match(text: Sequence[int], places: Sequence[int]) -> tuple[int, int]:
    """How many last tokens of the text stood before the latest of the places where most did, and that place.

    places: where what followed the last token begins, ascending. The text begins with as many ids that no token has.
    """
    for matched in range(1, _LONGEST):
        wanted, back = text[-1 - matched], 1 + matched
        longer = [place for place in places if text[place - back] == wanted]
        if not longer:
            return matched, places[-1]
        places = longer
    return _LONGEST, places[-1]
