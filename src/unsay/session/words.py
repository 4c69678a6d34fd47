"""How a text is cut into words, which tokens never cross: one regex for each kind (`pre`) of model.

The regexes know ASCII alone. A text with other characters is matched through a copy of the same length, in which each
of those is an ASCII character of its class: a letter, a number, white space, or none of them (Unicode's L, N and
White_Space, letters.py). So there is one rule, the same on every Python, and a start reads no Unicode tables.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from unsay.errors import UnsupportedError

_CLASSES = {"L": "A-Za-z", "N": "0-9", "W": "\\t-\\r ", "R": "\\r\\n"}
_WHITE = (0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
_LONG_S = 0x17F
"""Its capital is S, so it makes a contraction where capitals do."""


def _regex(pattern: str) -> str:
    """With classes for `L`, `N` and the like in brackets; no other capital letter stands in a pattern."""
    return re.sub("[LNWR]", lambda found: _CLASSES[found[0]], pattern)


_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?[L]+| ?[N]+| ?[^WLN]+|[W]+(?![^W])|[W]+"
_SMOLLM = r"'(?:[sdmt]|ll|ve|re)| ?[L]+|[N]| ?[^WLN]+|[W]+(?![^WN])|[W]+"
_LATER = r"'(?i:[sdmt]|ll|ve|re)|[^RLN]?[L]+|%s| ?[^WLN]+[R]*|[W]*[R]+|[W]+(?![^W])|[W]+"


class Kind(NamedTuple):
    """How one `pre` cuts text. nfc: it is composed before. whole_words: a token that is a word is taken unmerged."""

    word: str
    nfc: bool = False
    whole_words: bool = False


KINDS: dict[str, Kind] = {
    "gpt-2": Kind(_GPT2),
    "smollm": Kind(_SMOLLM),
    "llama-bpe": Kind(_LATER % "[N]{1,3}", whole_words=True),
    "qwen2": Kind(_LATER % "[N]", nfc=True),
}


def kind_of(model: str, pre: str) -> Kind:
    """The kind of a `tokenizer.ggml.model` and `pre`; raises UnsupportedError naming what there is."""
    if model != "gpt2":
        raise UnsupportedError(f"tokenizer model {model!r} is not supported; supported: 'gpt2' (byte-level BPE)")
    if pre not in KINDS:
        raise UnsupportedError(f"tokenizer kind (pre) {pre!r} is not supported; supported: {', '.join(KINDS)}")
    return KINDS[pre]


class WordCutter:
    """Cuts texts as one kind of model does. Any number of threads may use one."""

    def __init__(self, kind: Kind) -> None:
        self._find = re.compile(_regex(kind.word)).findall
        self._is_composed = kind.nfc
        self._classes = _AsciiClasses()

    def cut(self, text: str) -> list[str]:
        """The words of a text; they join to it, or to its composed form (NFC) where the kind wants that."""
        if text.isascii():
            return self._find(text)
        if self._is_composed:
            from unicodedata import normalize

            text = normalize("NFC", text)
        words: list[str] = []
        end = 0
        for found in self._find(text.translate(self._classes)):
            start, end = end, end + len(found)
            words.append(text[start:end])
        return words


class _AsciiClasses(dict[int, str]):
    """A table for str.translate, filled as characters are met."""

    def __missing__(self, code: int) -> str:
        self[code] = stands_for = _ascii_class(code)
        return stands_for


def _ascii_class(code: int) -> str:
    from unsay.session.letters import is_letter, is_number

    if code < 0x80:
        return chr(code)
    if code in _WHITE:
        return "\t"
    if code == _LONG_S:
        return "S"
    return "a" if is_letter(code) else "0" if is_number(code) else "!"
