from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unsay.cli.chat.keys import Key, KeyReader


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"\x1b[D\x1b[C\x1bOA\x1bOB", ["left", "right", "up", "down"]),
        (b"\x1b[H\x1b[4~\x1b[3~\x7f\r", ["home", "end", "delete", "backspace", "enter"]),
        (b"\x03\x04\x15\x17\x1a", ["ctrl-c", "ctrl-d", "ctrl-u", "ctrl-w", "ctrl-z"]),
        (b"\x1b[1;5C\x1b[15~\x00", []),
        (b"\x1bx", ["escape", "text"]),
    ],
)
def test_sequences_have_names(data: bytes, names: list[str]) -> None:
    assert [key.name for key in KeyReader().feed(data)] == names


def test_a_lone_escape_is_a_key_only_when_nothing_follows() -> None:
    reader = KeyReader()
    assert reader.feed(b"\x1b") == [] and reader.is_unfinished
    assert reader.finish() == [Key("escape")]
    assert reader.feed(b"\x1b") == [] and reader.feed(b"[D") == [Key("left")]


def test_pasted_text_cannot_press_enter() -> None:
    assert KeyReader().feed(b"\x1b[200~a\r\nb\rc\x1b[201~\r") == [Key("text", "a\nb\nc"), Key("enter")]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.integers(1, 5))
def test_characters_arrive_whole_however_they_are_cut(text: str, size: int) -> None:
    reader, data = KeyReader(), text.encode()
    keys = [key for start in range(0, len(data), size) for key in reader.feed(data[start : start + size])]
    assert [key.text for key in keys] == list(text)


@given(st.lists(st.binary(max_size=8)))
def test_any_bytes_are_read_without_fault(pieces: list[bytes]) -> None:
    reader = KeyReader()
    for piece in pieces:
        reader.feed(piece)
    reader.finish()
