"""Names of special tokens in a text."""

from __future__ import annotations

import re
from collections.abc import Collection


class SpecialNames:
    """Finds names in a text: from left to right, at each place the longest, none inside another.

    A regex of all names would do the same; to compile one of a hostile file's takes seconds.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._lengths = sorted(set(map(len, names)), reverse=True)
        first = re.escape("".join(sorted({name[0] for name in names})))
        self._first = re.compile(f"[{first}]" if first else "(?!)")

    def split(self, text: str) -> list[str]:
        """Text, name, text, name ... text: the pieces join to the whole, and every second one is a name."""
        pieces: list[str] = []
        end = 0
        for found in self._first.finditer(text):
            start = found.start()
            if start >= end and (name := self._longest_at(text, start)):
                pieces += (text[end:start], name)
                end = start + len(name)
        return [*pieces, text[end:]]

    def _longest_at(self, text: str, start: int) -> str:
        candidates = (text[start : start + length] for length in self._lengths)
        return next((name for name in candidates if name in self._names), "")
