"""Names of special tokens, and where they are in a text."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import compress, count

from unsay.errors import UnsupportedError
from unsay.image import VocabSpec

CONTROL, USER_DEFINED = 3, 4
"""Token types of a model file."""

MAX_SPECIAL = 1 << 13
MAX_NAME_CHARACTERS = 256
"""Llama 3 has 256 special tokens, names have 30 characters."""


def special_ids(spec: VocabSpec) -> dict[str, int]:
    """The special tokens by name; UnsupportedError if they are more or longer than any model's."""
    chosen = [i for i in places(spec.token_types, (CONTROL, USER_DEFINED)) if spec.tokens[i]]
    if len(chosen) > MAX_SPECIAL:
        raise UnsupportedError(f"the vocabulary has {len(chosen)} special tokens; at most {MAX_SPECIAL} are supported")
    ids = {spec.tokens[index]: index for index in chosen}
    longest = max(map(len, ids), default=0)
    if longest > MAX_NAME_CHARACTERS:
        raise UnsupportedError(
            f"a special token of the vocabulary has {longest} characters; at most {MAX_NAME_CHARACTERS} are supported"
        )
    return ids


def places(types: Sequence[int], kinds: tuple[int, ...]) -> list[int]:
    """Ids of the tokens of these types, in order."""
    return list(compress(count(), map(kinds.__contains__, types)))


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
