"""Text of an answer, token by token: whole characters only, and nothing that may turn out to begin a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from unsay.session.tokenizer import Tokenizer

_LONGEST_CHARACTER = 4


class StopMatcher:
    """Knuth-Morris-Pratt over one stop string: `matched` is how many of its characters the text now ends with."""

    def __init__(self, stop: str) -> None:
        self._stop = stop
        self._fallback = _fallbacks(stop)
        self.matched = 0

    @property
    def length(self) -> int:
        """Characters of the stop string."""
        return len(self._stop)

    def advance(self, character: str) -> bool:
        """Take one more character; True when the stop string is complete. Amortised O(1)."""
        while self.matched and self._stop[self.matched] != character:
            self.matched = self._fallback[self.matched - 1]
        if self._stop[self.matched] == character:
            self.matched += 1
        return self.matched == len(self._stop)


class Detokenizer:
    """State after the tokens pushed so far.

    Invariants: all text returned, then `held`, then the bytes of an unfinished character, is the text of the tokens
    pushed, until a stop string is complete; no text returned is part of a stop string that is complete or open.
    Control tokens have no text. Bytes that can no longer become a character are U+FFFD.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Iterable[str] = ()) -> None:
        self._token_bytes, self._control_ids = tokenizer.token_bytes, tokenizer.control_ids
        self._stop = tuple(text for text in stop if text)
        self._longest_stop = max(map(len, self._stop), default=0)
        self._clear()

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; from then on there is no more text."""
        return self._stopped

    @property
    def held(self) -> str:
        """Text held back because a stop string may begin with it."""
        return self._held

    def push(self, token_id: int) -> str:
        """Text that is now safe to show; what follows a stop string is dropped."""
        if self._stopped:
            return ""
        is_control = token_id in self._control_ids
        return self._release(self._decode(b"" if is_control else self._token_bytes(token_id), is_control))

    def flush(self) -> str:
        """The rest, when no more tokens come: text held back, and U+FFFD for an unfinished character."""
        text = self._release(self._decode(b"", True)) + self._held
        self._held = ""
        return text

    def rebuild(self, token_ids: Sequence[int]) -> None:
        """Be as after pushing `token_ids` from the start, none of which completed a stop string.

        Looks only at the last few: neither an open character nor an open stop string reaches further back.
        """
        self._clear()
        needed = _LONGEST_CHARACTER * (self._longest_stop + 2)
        first = len(token_ids)
        while first > 0 and needed > 0:
            first -= 1
            needed -= len(self._token_bytes(token_ids[first]))
        for token_id in token_ids[first:]:
            self.push(token_id)

    def _clear(self) -> None:
        self._open = b""
        self._matchers = [StopMatcher(stop) for stop in self._stop]
        self._held = ""
        self._stopped = False

    def _decode(self, data: bytes, is_final: bool) -> str:
        """Text of the bytes; an unfinished character stays open unless they are final."""
        data = self._open + data
        text, used = codecs.utf_8_decode(data, "replace", is_final)
        self._open = data[used:]
        return text

    def _release(self, text: str) -> str:
        if not self._matchers:
            return text
        for index, character in enumerate(text):
            complete = [matcher.length for matcher in self._matchers if matcher.advance(character)]
            if complete:
                self._stopped = True
                return self._cut(self._held + text[: index + 1], max(complete), keep=False)
        return self._cut(self._held + text, max(matcher.matched for matcher in self._matchers), keep=True)

    def _cut(self, text: str, tail: int, *, keep: bool) -> str:
        """All but the last `tail` characters, which are held or dropped."""
        end = len(text) - tail
        self._held = text[end:] if keep else ""
        return text[:end]


def _fallbacks(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper suffix that is also a prefix."""
    table = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = table[length - 1]
        if stop[index] == stop[length]:
            length += 1
        table[index] = length
    return table
