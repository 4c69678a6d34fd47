"""Words are those of the `tokenizers` library, character by character and in any mixture; so are the ids.

The library has Unicode's classes of its own, so every character there is can be held against it.
"""

from __future__ import annotations

import itertools
import random
import unicodedata
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as LibraryTokenizer

from tests.session.vocabularies import tiny_spec
from unsay.session.letters import is_letter, is_number
from unsay.session.tokenizer import Tokenizer, merged
from unsay.session.words import KINDS, WordCutter
from unsay.vocabulary import Vocabulary, vocabulary, vocabulary_bytes

_LATER = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LIBRARY: dict[str, list[Any]] = {
    "gpt-2": [pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)],
    "llama-bpe": [pre_tokenizers.Split(Regex(_LATER % r"\p{N}{1,3}"), "isolated")],
    "qwen2": [pre_tokenizers.Split(Regex(_LATER % r"\p{N}"), "isolated")],
}
_UNICODE_17_NUMBERS = frozenset((*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)))
"""The library's Digits knows them already, its \\p{N} not."""


def library_words(pre: str, text: str) -> list[str]:
    """The words as slices of the text."""
    text = normalizers.NFC().normalize_str(text) if pre == "qwen2" else text
    return [text[start:end] for _, (start, end) in pre_tokenizers.Sequence(_LIBRARY[pre]).pre_tokenize_str(text)]


def test_classes_are_those_of_unicode() -> None:
    """Of every character that this Python knows."""
    for code in range(0x80, 0x110000):
        category = unicodedata.category(chr(code))
        if category != "Cn":
            assert (is_letter(code), is_number(code)) == (category[0] == "L", category[0] == "N"), hex(code)


@pytest.mark.parametrize("pre", KINDS)
def test_a_class_begins_and_ends_where_it_does_in_the_library(pre: str) -> None:
    """Between letters, numbers and spaces a class shows by what it joins."""
    classes = [
        (code, is_letter(code), is_number(code)) for code in range(0x80, 0x110000) if not 0xD800 <= code < 0xE000
    ]
    edges = {code for (code, *old), (_, *new) in itertools.pairwise(classes) if old != new}
    codes = sorted({*range(0x250), *range(0x1FF0, 0x2070), *edges, *(code + 1 for code in edges)} - _UNICODE_17_NUMBERS)
    cut = WordCutter(KINDS[pre]).cut
    for start in range(0, len(codes), 64):
        chosen = map(chr, codes[start : start + 64])
        text = "".join(f"a{each}b  {each}{each}'{each} 7{each}\n" for each in chosen)
        assert cut(text) == library_words(pre, text), hex(codes[start])


_PIECES = (
    "a", "Z", "the", " ", "  ", "   ", "\n", "\r\n", "\t", "\x0b", "\x1c", "\x00", "\x85", "1", "234", "'", "'s", "'S",
    "'ll", "'LL", "'Ve", "'\u017f", "s", "é", "e\u0301", "½", "日本", "🐼", "\u3000", "\xa0", ".", "...", "_", "-",
    "\u2028",
)  # fmt: skip


@pytest.mark.parametrize("pre", KINDS)
@given(text=st.lists(st.sampled_from(_PIECES) | st.characters(exclude_categories=["Cs", "Cn"])).map("".join))
def test_words_are_those_of_the_library(pre: str, text: str) -> None:
    words = WordCutter(KINDS[pre]).cut(text)
    assert words == library_words(pre, text)
    assert pre == "qwen2" or "".join(words) == text


@cache
def _random_merges(seed: int) -> tuple[Vocabulary, LibraryTokenizer]:
    """A vocabulary of merges that overlap and nest in every way, and the library's own tokenizer of it."""
    draw, spec = random.Random(seed), tiny_spec(pre="gpt-2")
    tokens, merges = list(spec.tokens[:260]), list[str]()
    while len(merges) < 60:
        left, right = (draw.choice([*"abc", *tokens[260:]]) for _ in range(2))
        if left + right not in tokens and len(left + right) < 9:
            tokens.append(left + right)
        if left + right in tokens[260:]:
            merges.append(f"{left} {right}")
    spec = tiny_spec(pre="gpt-2", tokens=tuple(tokens), token_types=(1,) * len(tokens), merges=tuple(merges))
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    library = LibraryTokenizer(models.BPE({token: index for index, token in enumerate(tokens)}, pairs))
    return vocabulary(spec), library


@given(seed=st.integers(0, 7), word=st.text("abc", max_size=40))
def test_merging_is_that_of_the_library(seed: int, word: str) -> None:
    words, library = _random_merges(seed)
    assert merged(words, words.single(word.encode())) == library.encode(word, add_special_tokens=False).ids


def test_a_word_as_long_as_a_book_is_no_trouble() -> None:
    words, library = _random_merges(0)
    text = "abcabbca" * 5_000
    assert merged(words, words.single(text.encode())) == library.encode(text, add_special_tokens=False).ids


def test_a_byte_without_a_token_is_dropped_and_its_neighbours_meet() -> None:
    spec = tiny_spec(pre="gpt-2")
    lacking = spec.tokens.index("b")
    tokens = tuple("unused" if index == lacking else token for index, token in enumerate(spec.tokens))
    merges = tuple(merge for merge in spec.merges if "b" not in merge)
    tokenizer = Tokenizer(vocabulary(tiny_spec(pre="gpt-2", tokens=tokens, merges=merges)))
    assert tokenizer.encode("tbhbe") == tokenizer.encode("the")


def test_the_file_of_a_vocabulary_gives_back_what_went_in() -> None:
    spec = tiny_spec(end_ids=(2, 3))
    words = Vocabulary(memoryview(vocabulary_bytes(spec)))
    assert (words.head.kind, words.head.pre, words.head.bos_id, words.head.eos_id) == ("gpt2", "smollm", 1, 2)
    assert words.head.end_ids == [2, 3] and words.head.chat_template == spec.chat_template
    assert len(words) == len(spec.tokens)
    for token_id, token in enumerate(spec.tokens):
        assert token not in words.head.special or words.token_bytes(token_id) == token.encode()
        assert token in words.head.special or words.word(words.token_bytes(token_id)) == token_id
