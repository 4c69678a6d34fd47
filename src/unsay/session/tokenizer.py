"""Text to token ids and back, from the vocabulary in the model file.

Byte-level BPE: text is cut into words by a regex that depends on the model (words.py), and in each word the tokens of
its bytes are merged in pairs, those of the lowest rank first. Control tokens never enter it: they are found by `encode`
itself, and only where it is told to, so no text of a user can become one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush

from unsay.errors import RequestError
from unsay.session.special import SpecialNames
from unsay.session.words import WordCutter, kind_of
from unsay.vocabulary import NONE, Vocabulary

_ENDS_A_TURN = frozenset(
    ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<EOT>")
)
"""Control tokens that end an answer, whatever the file says of its EOS (the same names llama.cpp goes by)."""

_KEPT_BYTES = range(0xDC80, 0xDD00)
"""What Python's "surrogateescape" keeps the bytes 0x80 to 0xff of an input as that is not UTF-8."""

_NUM_KEPT_WORDS, _LONGEST_KEPT = 1 << 15, 32
"""Words whose ids are remembered, and their most characters."""


class Tokenizer:
    """Any number of threads may use one.

    A byte the vocabulary has no token for is dropped, as by the model's other tokenizers (SmolLM2 lacks a few
    control characters and two lead bytes of unassigned planes). Raises UnsupportedError for a kind not in words.KINDS.

    vocab_size: V. control_ids: marks for the model and not text to be shown.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        head = vocabulary.head
        kind = kind_of(head.kind, head.pre)
        self._vocabulary, self._head = vocabulary, head
        self.vocab_size = len(vocabulary)
        self.control_ids = frozenset(head.control)
        self._special_names = SpecialNames(head.special)
        self._takes_whole_words = kind.whole_words
        self._cut = WordCutter(kind).cut
        self._remembered = lru_cache(_NUM_KEPT_WORDS)(self._word_ids)

    @property
    def bos_id(self) -> int | None:
        """Token that starts a text, None if the file names none; `add_bos` says whether it is wanted."""
        return self._head.bos_id

    @property
    def add_bos(self) -> bool:
        """Whether a context of this model starts with BOS."""
        return self._head.add_bos and self._head.bos_id is not None

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer: the file's EOS and EOT, and control tokens known to be one."""
        special = self._head.special
        named = {special[token] for token in _ENDS_A_TURN if token in special}
        stated = {i for i in (self._head.eos_id, self._head.eot_id) if i is not None}
        return frozenset(named | stated | set(self._head.end_ids))

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of a text, without BOS. special: whether names of special tokens in it stand for those tokens.

        Raises RequestError if it is no text, or holds half of a surrogate pair.
        """
        return self.encode_spans([(text, special)])

    def encode_spans(self, spans: Iterable[tuple[str, bool]]) -> list[int]:
        """Ids of spans of (text, special) as one text: words may run over a span's end, special tokens may not."""
        token_ids: list[int] = []
        plain: list[str] = []
        for text, special in spans:
            check_text(text)
            pieces = self._special_names.split(text) if special else [text]
            plain.append(pieces[0])
            for name, following in zip(pieces[1::2], pieces[2::2], strict=True):
                token_ids += self._encode_plain("".join(plain))
                token_ids.append(self._head.special[name])
                plain = [following]
        return token_ids + self._encode_plain("".join(plain))

    def with_bos(self, token_ids: Sequence[int]) -> list[int]:
        """The ids as a context of their own: BOS in front if the model wants one and it is not there yet."""
        bos = self._head.bos_id
        if not self.add_bos or bos is None or (token_ids and token_ids[0] == bos):
            return list(token_ids)
        return [bos, *token_ids]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of the ids, control tokens by name; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for: a control token's are its name. Raises RequestError beyond the vocabulary."""
        if not 0 <= token_id < self.vocab_size:
            raise RequestError(f"token id {token_id} is not in the vocabulary, which has 0..{self.vocab_size - 1}")
        return self._vocabulary.token_bytes(token_id)

    def _encode_plain(self, text: str) -> list[int]:
        token_ids: list[int] = []
        for word in self._cut(text):
            token_ids += self._remembered(word) if len(word) <= _LONGEST_KEPT else self._word_ids(word)
        return token_ids

    def _word_ids(self, word: str) -> list[int]:
        data = word.encode()
        if self._takes_whole_words and (whole := self._vocabulary.word(data)) is not None:
            return [whole]
        return merged(self._vocabulary, self._vocabulary.single(data))


def merged(vocabulary: Vocabulary, tokens: list[int]) -> list[int]:
    """The tokens of a word's bytes, merged until no neighbours merge: the lowest rank first, the leftmost of equals.

    Each token lies where its first byte lay; a place it has swallowed holds -1. Time: O(n log n).
    """
    before = list(range(-1, len(tokens) - 1))
    after = list(range(1, len(tokens) + 1))

    def candidate(place: int) -> tuple[int, int, int, int] | None:
        """(rank and product, place, left, right) of a token and the one after it."""
        if place < 0 or after[place] == len(tokens):
            return None
        left, right = tokens[place], tokens[after[place]]
        merge = vocabulary.merge(left << 32 | right)
        return None if merge is None else (merge, place, left, right)

    heap = [found for place in range(len(tokens) - 1) if (found := candidate(place))]
    heapify(heap)
    while heap:
        merge, place, left, right = heappop(heap)
        gone = after[place]
        if tokens[place] != left or gone == len(tokens) or tokens[gone] != right:
            continue
        tokens[place], tokens[gone] = merge & NONE, -1
        after[place] = after[gone]
        if after[gone] < len(tokens):
            before[after[gone]] = place
        for nearby in (before[place], place):
            if found := candidate(nearby):
                heappush(heap, found)
    return [token for token in tokens if token >= 0]


def check_text(text: object) -> None:
    """Raise RequestError for what is no text, or holds half of a surrogate pair, which no file or terminal can.

    Some halves are how Python keeps a byte of its input that is not UTF-8; that byte is then named.
    """
    if not isinstance(text, str):
        raise RequestError(f"{text!r} is no text: give a str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        if code in _KEPT_BYTES:
            raise RequestError(
                f"the text is not UTF-8: after {error.start} characters comes the byte 0x{code & 0xFF:02x}; convert it"
            ) from None
        raise RequestError(
            f"the text is not valid Unicode: character {error.start} is U+{code:04X}, half of a surrogate pair; "
            "decode it as UTF-8 first"
        ) from None
