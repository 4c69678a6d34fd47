from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from unsay.cli.chat.keys import Key
from unsay.cli.chat.picker import Picker


def test_arrows_move_within_the_answer() -> None:
    picker = Picker(["a", "b", "c"])
    assert picker.index == 2
    assert picker.press(Key("left")) and picker.index == 1
    assert picker.press(Key("up")) and picker.index == 0
    assert picker.press(Key("down")) and picker.index == 2
    assert not picker.press(Key("enter"))


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1), st.integers(0, 50))
def test_the_picked_token_is_marked_and_the_line_fits(tokens: list[str], steps: int) -> None:
    picker = Picker(tokens)
    for _ in range(steps):
        picker.press(Key("left"))
    view = picker.view(60)
    assert view.count("\x1b[7m") == 1
    assert cell_len(re.sub(r"\x1b\[\d+m", "", view)) <= 60
