"""Byte-level BPE written for obviousness: one regex over character classes, then the lowest-ranked merge, repeated.

Shares nothing with the product: the words are found by Python's `re` on a string of class letters, one for each
character, because `re` has no \\p{L}.
"""

from __future__ import annotations

import itertools
import re
import unicodedata

from tests.tiny import byte_alphabet
from unsay.image import VocabSpec

_WHITE = {*"\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000", *map(chr, range(0x2000, 0x200B))}

# L letter, N number, S the space, R line end, W other white space, P anything else; a contraction is tested before.
_WORDS = {
    "gpt-2": r"S?L+|S?N+|S?P+|[SRW]+(?![LNP])|[SRW]+",
    "llama-bpe": r"[SWP]?L+|N{1,3}|S?P+R*|[SRW]*R+|[SRW]+(?![LNP])|[SRW]+",
    "qwen2": r"[SWP]?L+|N|S?P+R*|[SRW]*R+|[SRW]+(?![LNP])|[SRW]+",
}
_CONTRACTION = re.compile("'(?:s|t|re|ve|m|ll|d)")
_ANY_CASE = re.compile("'(?:s|t|re|ve|m|ll|d)", re.IGNORECASE)


def encode(spec: VocabSpec, text: str) -> list[int]:
    """Ids of a text without control tokens."""
    text = unicodedata.normalize("NFC", text) if spec.pre == "qwen2" else text
    ids = {token: index for index, token in enumerate(spec.tokens)}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(spec.merges)}
    alphabet = byte_alphabet()
    encoded: list[int] = []
    for piece in _pieces(spec.pre, text):
        for word in _words(spec.pre, piece):
            symbols = [alphabet[byte] for byte in word.encode()]
            if spec.pre == "llama-bpe" and "".join(symbols) in ids:
                symbols = ["".join(symbols)]
            encoded += [ids[symbol] for symbol in _merge(symbols, ranks)]
    return encoded


def _merge(symbols: list[str], ranks: dict[tuple[str, ...], int]) -> list[str]:
    while pairs := [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(symbols)) if pair in ranks]:
        _, at = min(pairs)
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]
    return symbols


def _pieces(pre: str, text: str) -> list[str]:
    """SmolLM cuts every numeric character out first, then the rest is as for GPT-2."""
    if pre != "smollm":
        return [text]
    pieces: list[str] = [""]
    for character in text:
        if _class_of(character) == "N":
            pieces += [character, ""]
        else:
            pieces[-1] += character
    return [piece for piece in pieces if piece]


def _words(pre: str, text: str) -> list[str]:
    kind = "gpt-2" if pre == "smollm" else pre
    pattern, contraction = re.compile(_WORDS[kind]), _CONTRACTION if kind == "gpt-2" else _ANY_CASE
    classes = "".join(map(_class_of, text))
    words: list[str] = []
    at = 0
    while at < len(text):
        found = contraction.match(text, at) or pattern.match(classes, at)
        assert found is not None, (text, at)
        words.append(text[at : found.end()])
        at = found.end()
    return words


def _class_of(character: str) -> str:
    if character in _WHITE:
        return {" ": "S", "\n": "R", "\r": "R"}.get(character, "W")
    category = unicodedata.category(character)
    return category[0] if category[0] in "LN" else "P"
