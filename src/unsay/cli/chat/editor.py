"""One line being typed: its text, the cursor in it, and the part of it a terminal of some width shows."""

from __future__ import annotations

from rich.cells import cell_len

from unsay.cli.chat.keys import Key
from unsay.cli.chat.show import one_line


class Editor:
    """Text and cursor; up and down walk through the lines entered before."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self._entered: list[str] = []
        self._walk = 0

    def start(self, text: str = "") -> None:
        """Begin a new line."""
        self.text, self.cursor = text, len(text)
        self._walk = len(self._entered)

    def enter(self) -> str:
        """The line is done; it is remembered and given back."""
        line = self.text
        if line.strip() and line not in self._entered[-1:]:
            self._entered.append(line)
        self.start()
        return line

    def press(self, key: Key) -> None:
        """Do what an editing key says; other keys do nothing."""
        if key.name == "text":
            self._replace(self.cursor, self.cursor, key.text)
        elif key.name == "backspace":
            self._replace(max(0, self.cursor - 1), self.cursor, "")
        elif key.name == "delete":
            self._replace(self.cursor, self.cursor + 1, "")
        elif key.name == "ctrl-u":
            self._replace(0, self.cursor, "")
        elif key.name == "ctrl-k":
            self._replace(self.cursor, len(self.text), "")
        elif key.name == "ctrl-w":
            self._replace(self._word_start(), self.cursor, "")
        elif key.name in ("up", "down"):
            self._recall(-1 if key.name == "up" else 1)
        else:
            self._move(key.name)

    def view(self, width: int) -> tuple[str, int]:
        """What fits in `width` cells around the cursor, and the cell the cursor is in."""
        first = self.cursor
        while first > 0 and cell_len(one_line(self.text[first - 1 : self.cursor])) < width:
            first -= 1
        last = self.cursor
        while last < len(self.text) and cell_len(one_line(self.text[first : last + 1])) < width:
            last += 1
        return one_line(self.text[first:last]), cell_len(one_line(self.text[first : self.cursor]))

    def _replace(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]
        self.cursor = start + len(text)

    def _move(self, name: str) -> None:
        steps = {"left": self.cursor - 1, "right": self.cursor + 1, "home": 0, "end": len(self.text)}
        self.cursor = min(max(0, steps.get(name, self.cursor)), len(self.text))

    def _word_start(self) -> int:
        return len(self.text[: self.cursor].rstrip().rpartition(" ")[0])

    def _recall(self, step: int) -> None:
        if not self._entered:
            return
        self._walk = min(max(0, self._walk + step), len(self._entered))
        line = self._entered[self._walk] if self._walk < len(self._entered) else ""
        self.text, self.cursor = line, len(line)
