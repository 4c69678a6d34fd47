"""Picking a token of the answer with the arrow keys, on one line of the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from unsay.cli.chat.keys import Key
from unsay.cli.chat.show import one_line

_REVERSE, _PLAIN = "\x1b[7m", "\x1b[27m"
_STEPS = {"left": -1, "right": 1, "up": -10, "down": 10}


class Picker:
    """`index` is the token that would be taken back, with all after it; it starts at the last one."""

    def __init__(self, tokens: Sequence[str]) -> None:
        assert tokens
        self._tokens = [one_line(token) or "·" for token in tokens]
        self.index = len(tokens) - 1

    def press(self, key: Key) -> bool:
        """Move; False if the key is none that moves."""
        if key.name in _STEPS:
            self.index = min(max(0, self.index + _STEPS[key.name]), len(self._tokens) - 1)
        elif key.name == "home":
            self.index = 0
        elif key.name == "end":
            self.index = len(self._tokens) - 1
        else:
            return False
        return True

    def view(self, width: int) -> str:
        """The tokens around the one picked, which is shown in reverse video, in at most `width` cells."""
        first, last = self.index, self.index + 1
        room = width - self._cells(first, last)
        while True:
            if first > 0 and self._cells(first - 1, last) <= width - room // 3:
                first -= 1
            elif last < len(self._tokens) and self._cells(first, last + 1) <= width:
                last += 1
            elif first > 0 and self._cells(first - 1, last) <= width:
                first -= 1
            else:
                break
        before, after = self._tokens[first : self.index], self._tokens[self.index + 1 : last]
        return f"{''.join(before)}{_REVERSE}{self._tokens[self.index]}{_PLAIN}{''.join(after)}"

    def _cells(self, first: int, last: int) -> int:
        return cell_len("".join(self._tokens[first:last]))
