from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.session.vocabularies import tiny_words
from tests.work import num_lines
from unsay.session.detokenizer import Detokenizer
from unsay.session.tokenizer import Tokenizer

LINES_PER_CHARACTER = 50
TOKENIZER = Tokenizer(tiny_words())
BYTES = {TOKENIZER.token_bytes(token_id): token_id for token_id in range(4, 260)}


def byte_ids(data: bytes) -> list[int]:
    """One token a byte: the hardest way to say it."""
    return [BYTES[bytes([byte])] for byte in data]


def streamed(token_ids: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    """Text after each token, then that of the flush."""
    detokenizer = Detokenizer(TOKENIZER, stop)
    return [detokenizer.push(token_id) for token_id in token_ids] + [detokenizer.flush()]


@given(st.text())
def test_characters_arrive_once_and_whole(text: str) -> None:
    pieces = streamed(byte_ids(text.encode()))
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == list(text)


@given(st.binary())
def test_any_bytes_give_what_python_decodes(data: bytes) -> None:
    assert "".join(streamed(byte_ids(data))) == data.decode("utf-8", errors="replace")


def test_an_emoji_over_four_tokens_appears_with_the_last() -> None:
    assert streamed(byte_ids("🐼!".encode())) == ["", "", "", "🐼", "!", ""]


def test_invalid_bytes_are_replaced_once_they_cannot_become_valid() -> None:
    assert streamed(byte_ids(b"\xf0\x9fA")) == ["", "", "\ufffdA", ""]
    assert streamed(byte_ids(b"\xf0\x9f")) == ["", "", "\ufffd"]


def test_spaces_and_newlines_are_kept_exactly() -> None:
    token_ids = TOKENIZER.encode("you're OK!\n \n")
    assert "".join(streamed(token_ids)) == "you're OK!\n \n"


def test_control_tokens_have_no_text_and_end_an_open_character() -> None:
    assert streamed([*byte_ids(b"a\xf0"), 2, *byte_ids(b"b")]) == ["a", "", "\ufffd", "b", ""]


def test_no_part_of_a_stop_string_leaks() -> None:
    token_ids = byte_ids(b"ABCDEFGHIJKLM")
    assert streamed(token_ids, ("DEFGHIJ",)) == ["A", "B", "C"] + [""] * 11


def test_what_only_looked_like_a_stop_string_is_released() -> None:
    assert streamed(byte_ids(b"ABABAC"), ("ABAC!", "ZZ")) == ["", "", "", "AB", "", "", "ABAC"]
    assert streamed(byte_ids(b"xABy"), ("ABC",)) == ["x", "", "", "ABy", ""]


def test_the_stop_string_complete_first_wins_and_the_longer_of_two() -> None:
    assert "".join(streamed(byte_ids(b"one two"), (" two", "e"))) == "on"
    assert "".join(streamed(byte_ids(b"one two"), ("two", " two"))) == "one"


def test_a_stop_string_inside_a_token_cuts_it() -> None:
    token_ids = TOKENIZER.encode("the pandas")
    detokenizer = Detokenizer(TOKENIZER, ("an",))
    assert "".join(detokenizer.push(token_id) for token_id in token_ids) == "the p"
    assert detokenizer.stopped and detokenizer.flush() == ""


def test_empty_stop_strings_stop_nothing() -> None:
    assert "".join(streamed(byte_ids(b"abc"), ("",))) == "abc"


letters = st.text(alphabet="ab", max_size=30)


@given(letters, st.lists(st.text(alphabet="ab", min_size=1, max_size=5), max_size=3))
def test_stopping_equals_a_search_in_the_whole_text(text: str, stops: list[str]) -> None:
    detokenizer = Detokenizer(TOKENIZER, stops)
    shown = ""
    for index, token_id in enumerate(byte_ids(text.encode())):
        shown += detokenizer.push(token_id)
        ends = [stop for stop in stops if text[: index + 1].endswith(stop)]
        if ends:
            assert detokenizer.stopped
            assert shown == text[: index + 1 - max(map(len, ends))]
            return
        held = [n for stop in stops for n in range(1, len(stop)) if text[: index + 1].endswith(stop[:n])]
        assert shown == text[: index + 1 - max(held, default=0)]
    assert not detokenizer.stopped
    assert shown + detokenizer.flush() == text


@given(st.binary(max_size=40), st.lists(st.text(min_size=1, max_size=4), max_size=3), st.binary(max_size=6))
def test_rebuilding_equals_pushing_from_the_start(data: bytes, stops: list[str], more: bytes) -> None:
    token_ids = byte_ids(data)
    pushed, rebuilt = Detokenizer(TOKENIZER, stops), Detokenizer(TOKENIZER, stops)
    for token_id in token_ids:
        pushed.push(token_id)
    if pushed.stopped:
        return
    rebuilt.rebuild(token_ids)
    assert rebuilt.held == pushed.held
    for token_id in byte_ids(more):
        assert rebuilt.push(token_id) == pushed.push(token_id)
    assert rebuilt.flush() == pushed.flush()


@pytest.mark.parametrize("stop", ["a" * 500 + "b", "ab" * 250 + "c"])
def test_a_character_takes_the_same_work_however_long_the_stop_string(stop: str) -> None:
    token_ids = byte_ids(b"ab" * 2_000 + b"a" * 4_000)
    assert num_lines(lambda: streamed(token_ids, (stop,))) < LINES_PER_CHARACTER * len(token_ids)
