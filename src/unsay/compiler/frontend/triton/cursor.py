"""A place in a text and the ways to go on from it; every failure is an IrError with line and column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from unsay.errors import IrError

_SPACE = re.compile(r"(?:\s|//[^\n]*)+")
_BLANK = " \n\t\r/"
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")

_Item = TypeVar("_Item")


class Cursor:
    """Space and comments after what was read are read with it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.skip()

    def at(self, mark: str) -> bool:
        """Whether the text goes on with this."""
        return self.text.startswith(mark, self.position)

    def balanced(self) -> None:
        """Skip brackets and all inside them."""
        depth = 0
        while self.position < len(self.text):
            character = self.text[self.position]
            if character == '"':
                self.string()
                continue
            if self.text.startswith("->", self.position):
                self.position += 2
                continue
            depth += (character in "<([{") - (character in ">)]}")
            self.position += 1
            if depth == 0:
                self.skip()
                return
        self.fail("brackets that are never closed")

    def string(self) -> str:
        """A string in quotes, without them."""
        match = _STRING.match(self.text, self.position)
        if match is None:
            self.fail(f"expected a string, found {self.found()}")
        self.position = match.end()
        self.skip()
        return match[1]

    def items(self, item: Callable[[], _Item], end: str) -> list[_Item]:
        """`item {',' item} end`, or just `end`."""
        items: list[_Item] = []
        while not self.accept(end):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """What a pattern matches here; `what` names it where it does not."""
        match = pattern.match(self.text, self.position)
        if match is None:
            self.fail(f"expected {what}, found {self.found()}")
        self.position = match.end()
        self.skip()
        return match[0]

    def accept(self, mark: str) -> bool:
        """Go past a mark, if the text goes on with it."""
        if not self.text.startswith(mark, self.position):
            return False
        self.position += len(mark)
        self.skip()
        return True

    def accept_word(self, word: str) -> bool:
        """Go past a word, if it is the whole word here."""
        match = NAME.match(self.text, self.position)
        return match is not None and match[0] == word and self.accept(word)

    def expect(self, mark: str) -> None:
        """Go past a mark that must be here."""
        if not self.accept(mark):
            self.fail(f"expected {mark!r}, found {self.found()}")

    def skip(self) -> None:
        """Go past space and comments."""
        if self.text[self.position : self.position + 1] in _BLANK and (match := _SPACE.match(self.text, self.position)):
            self.position = match.end()

    def found(self) -> str:
        """What is here, for a message."""
        return repr(self.text[self.position : self.position + 20]) if self.position < len(self.text) else "the end"

    def location(self, start: int) -> tuple[int, int]:
        """Line and column of a place, from 1."""
        return self.text.count("\n", 0, start) + 1, start - self.text.rfind("\n", 0, start)

    def fail(self, message: str) -> NoReturn:
        """Raise IrError for this place."""
        raise IrError(message, *self.location(self.position))
