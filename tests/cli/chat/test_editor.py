from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from unsay.cli.chat.editor import Editor
from unsay.cli.chat.keys import Key


def typed(*keys: str) -> Editor:
    """An editor after these keys; a name of more than one letter is a named key."""
    editor = Editor()
    for key in keys:
        editor.press(Key("text", key) if len(key) == 1 else Key(key))
    return editor


def test_keys_edit_at_the_cursor() -> None:
    assert typed("a", "b", "left", "x").text == "axb"
    assert typed("a", "b", "backspace", "left", "delete").text == ""
    assert typed("a", " ", "b", "c", "ctrl-w").text == "a"
    assert typed("a", "b", "home", "ctrl-k", "left", "right").text == ""
    assert typed("a", "b", "end", "ctrl-u").text == ""


def test_lines_entered_come_back() -> None:
    editor = typed("a")
    assert editor.enter() == "a" and editor.text == ""
    editor.press(Key("up"))
    assert editor.text == "a"
    editor.press(Key("down"))
    assert editor.text == ""


@given(st.text(), st.integers(0, 40), st.integers(10, 60))
def test_the_view_fits_and_holds_the_cursor(text: str, back: int, width: int) -> None:
    editor = Editor()
    editor.start(text)
    for _ in range(back):
        editor.press(Key("left"))
    view, column = editor.view(width)
    assert cell_len(view) <= width
    assert 0 <= column <= cell_len(view)
