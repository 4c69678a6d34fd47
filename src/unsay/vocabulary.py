"""A vocabulary laid out to be used where it lies: a start maps the file and reads the few pages a prompt needs.

The compiler writes it once (`vocabulary_bytes`), as vocabulary.bin of an image; numbers are little-endian:

    u32   bytes of the head, then the head: JSON, a `Head`; then the columns, each from a multiple of 8 bytes on
    u32   ends [V + 1]       token i stands for the bytes text[ends[i]:ends[i + 1]]
    u8    text [.]
    u32   single [256]       the token of each byte, NONE where there is none
    u64   pairs [M]          left << 32 | right of each merge, ascending
    u64   merges [M]         rank << 32 | product: lower ranks merge first; the token that left and right become
    u32   words [.]          plain tokens in the order of their bytes

Bytes are written in token names as in GPT-2's bytes_to_unicode. Control tokens are in no merge and no word.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, compress, count
from operator import add
from pathlib import Path
from typing import Literal, NamedTuple

from unsay.errors import ModelFileError, UnsupportedError
from unsay.image import VocabSpec

NONE = (1 << 32) - 1
CONTROL, USER_DEFINED = 3, 4
"""Token types of a model file."""

MAX_SPECIAL = 1 << 13
MAX_NAME_CHARACTERS = 256
"""Llama 3 has 256 special tokens, names have 30 characters."""

_COLUMNS: dict[str, Literal["B", "I", "Q"]] = {
    "ends": "I", "text": "B", "single": "I", "pairs": "Q", "merges": "Q", "words": "I",
}  # fmt: skip
_NUM_KEPT_PAIRS = 1 << 14
"""Those looked up last are remembered: a text has few that differ."""

assert sys.byteorder == "little", "every target of isa/targets.py is"


class Head(NamedTuple):
    """What a start reads whole; fields as in VocabSpec. special: ids of special tokens by name. control: ids."""

    kind: str
    pre: str
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    end_ids: list[int]
    add_bos: bool
    chat_template: str | None
    special: dict[str, int]
    control: list[int]
    num_bytes: dict[str, int]


class Vocabulary:
    """Tokens and merges of a model, over the bytes of a vocabulary file. Any number of threads may use one.

    merge(left << 32 | right): rank << 32 | product of two neighbours, None if they do not merge.
    """

    def __init__(self, data: memoryview) -> None:
        start = 4 + int.from_bytes(data[:4], "little")
        self.head = Head(**json.loads(bytes(data[4:start])))
        columns: dict[str, memoryview] = {}
        for name, size in self.head.num_bytes.items():
            start = _aligned(start)
            columns[name] = data[start : start + size].cast(_COLUMNS[name])
            start += size
        self._ends, self._text, self._single = columns["ends"], columns["text"], columns["single"]
        self._pairs, self._merges, self._words = columns["pairs"], columns["merges"], columns["words"]
        self.merge = lru_cache(_NUM_KEPT_PAIRS)(self._merge)

    def __len__(self) -> int:
        """V: number of token ids."""
        return len(self._ends) - 1

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; a special token's are its name."""
        return bytes(self._text[self._ends[token_id] : self._ends[token_id + 1]])

    def single(self, word: bytes) -> list[int]:
        """The token of each byte, without bytes that have none."""
        single = self._single
        return [token for byte in word if (token := single[byte]) != NONE]

    def _merge(self, pair: int) -> int | None:
        at = bisect_left(self._pairs, pair)
        return self._merges[at] if at < len(self._pairs) and self._pairs[at] == pair else None

    def word(self, word: bytes) -> int | None:
        """The plain token that stands for these bytes, None if none does."""
        at = bisect_left(self._words, word, key=self.token_bytes)
        return self._words[at] if at < len(self._words) and self.token_bytes(self._words[at]) == word else None


def vocabulary(spec: VocabSpec) -> Vocabulary:
    """The vocabulary of a model that is in no image; raises as `vocabulary_bytes`."""
    return Vocabulary(memoryview(vocabulary_bytes(spec)))


def vocabulary_bytes(spec: VocabSpec) -> bytes:
    """A vocabulary file. Raises ModelFileError for one that contradicts itself, UnsupportedError as `special_ids`."""
    ids = dict(zip(spec.tokens, range(len(spec.tokens)), strict=True))
    if len(ids) != len(spec.tokens):
        raise ModelFileError(f"the vocabulary names {len(spec.tokens) - len(ids)} tokens twice")
    special = special_ids(spec)
    for name in special:
        del ids[name]
    plain, texts = _texts(spec.tokens, special)
    pairs, merges = _merges(spec.merges, ids)
    columns = {
        "ends": array("I", accumulate(map(len, texts), initial=0)),
        "text": b"".join(texts),
        "single": array("I", (ids.get(character, NONE) for character in _ALPHABET)),
        "pairs": pairs, "merges": merges,
        "words": array("I", sorted(plain, key=texts.__getitem__)),
    }  # fmt: skip
    pieces = {name: bytes(column) for name, column in columns.items()}
    control = places(spec.token_types, (CONTROL,))
    head = Head(
        spec.kind, spec.pre, spec.bos_id, spec.eos_id, spec.eot_id, list(spec.end_ids), spec.add_bos,
        spec.chat_template, special, control, {name: len(piece) for name, piece in pieces.items()},
    )  # fmt: skip
    return _join(json.dumps(head._asdict()).encode(), pieces.values())


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


def open_vocabulary(path: Path) -> Vocabulary:
    """Map a vocabulary file."""
    import mmap

    with path.open("rb") as file:
        return Vocabulary(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def _texts(tokens: Sequence[str], special: dict[str, int]) -> tuple[list[int], list[bytes]]:
    """Ids of plain tokens whose every character is a byte, and the bytes of all tokens."""
    byte_of = {character: byte for byte, character in enumerate(_ALPHABET)}
    spelled: list[int] = []
    texts: list[bytes] = []
    for index, token in enumerate(tokens):
        try:
            texts.append(bytes(map(byte_of.__getitem__, token)))
            spelled.append(index)
        except KeyError:
            texts.append(b"".join(bytes([byte_of[c]]) if c in byte_of else _utf8(c) for c in token))
    for name, index in special.items():
        texts[index] = _utf8(name)
    return [index for index in spelled if tokens[index] not in special], texts


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ModelFileError(f"the vocabulary has a token that is not Unicode: {text[:80]!r}") from None


def _merges(merges: Sequence[str], ids: dict[str, int]) -> tuple[array[int], array[int]]:
    """The columns pairs and merges. Of a pair written twice the later one counts."""
    odd = next((merge for merge in merges if merge.count(" ") != 1), None)
    if odd is not None:
        raise ModelFileError(f"the merge {odd[:80]!r} is not two tokens with a space between them")
    names = " ".join(merges).split(" ") if merges else []
    id_of = ids.__getitem__
    try:
        halves = list(map(id_of, names))
        made = map(id_of, map(add, names[::2], names[1::2]))
        ranked = {
            left << 32 | right: rank << 32 | product
            for rank, (left, right, product) in enumerate(zip(halves[::2], halves[1::2], made, strict=True))
        }
    except KeyError as missing:
        name = str(missing.args[0])[:80]
        raise ModelFileError(f"the vocabulary and its merges do not fit together: `{name}` out of vocabulary") from None
    pairs = sorted(ranked)
    return array("Q", pairs), array("Q", map(ranked.__getitem__, pairs))


def _join(head: bytes, columns: Iterable[bytes]) -> bytes:
    made = bytearray(len(head).to_bytes(4, "little") + head)
    for column in columns:
        made += bytes(_aligned(len(made)) - len(made)) + column
    return bytes(made)


def _aligned(place: int) -> int:
    return -(-place // 8) * 8


def _byte_alphabet() -> str:
    """The character of each byte: printable Latin-1 is itself, the others follow from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = count(0x100)
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


_ALPHABET = _byte_alphabet()
