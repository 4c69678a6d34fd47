"""A text as tokens, and what every parser does with them. What is wrong is an IrError with line and column."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from unsay.errors import IrError

MAX_DIGITS = 19
_ARTICLES = {
    "name": "a name",
    "value": "a value",
    "int": "a number or a string",
    "string": "a string",
    "type": "a type",
}

_Item = TypeVar("_Item")


_SPACE = r"(?>(?:[ \t\r\n]+|//[^\n]*)*)"


def grammar(*kinds: tuple[str, str]) -> re.Pattern[str]:
    """The tokens of a language: (kind, regular expression), tried in order, each after spaces and comments."""
    return re.compile(f"{_SPACE}(?:{'|'.join(f'(?P<{kind}>{expression})' for kind, expression in kinds)})")


def fits_i64(value: int) -> bool:
    """Whether an integer attribute can be this number."""
    return -(2**63) <= value < 2**63


class Token(NamedTuple):
    """`kind` is that of the expression of the grammar that matched."""

    kind: str
    text: str
    start: int


class Tokens:
    """The tokens of a text, from left to right."""

    def __init__(self, text: str, language: re.Pattern[str]) -> None:
        self._text = text
        self._line_ends = [place for place, character in enumerate(text) if character == "\n"]
        self._tokens = self._scan(language)
        self._next = 0

    def _scan(self, language: re.Pattern[str]) -> list[Token]:
        tokens: list[Token] = []
        end = 0
        for match in language.finditer(self._text):
            if match.start() != end:
                break
            kind = match.lastgroup or ""
            tokens.append(Token(kind, match[kind], match.start(kind)))
            end = match.end()
        rest = re.compile(_SPACE).match(self._text, end)
        start = rest.end() if rest else end
        if start < len(self._text):
            self.fail(f"no token begins with {self._text[start]!r}", start)
        return [*tokens, Token("end", "end of text", start)]

    def location(self, start: int) -> tuple[int, int]:
        """Line and column of a place in the text."""
        line = bisect_left(self._line_ends, start)
        return line + 1, start - (self._line_ends[line - 1] if line else -1)

    def fail(self, message: str, start: int) -> NoReturn:
        """Raise IrError that points at a place in the text."""
        raise IrError(message, *self.location(start))

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._next]

    @property
    def following(self) -> Token:
        """The token after the next."""
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def advance(self) -> Token:
        """The next token, and go on."""
        token = self.token
        self._next += token.kind != "end"
        return token

    def at(self, text: str) -> bool:
        """Whether the next token is this mark or word."""
        return self.token.text == text and self.token.kind in ("mark", "name")

    def accept(self, text: str) -> bool:
        """Go past this mark or word, if it is next."""
        found = self.at(text)
        self._next += found
        return found

    def expect(self, text: str) -> None:
        """Go past this mark or word."""
        if not self.accept(text):
            self.fail(f"expected {text!r}, found {self.token.text!r}", self.token.start)

    def take(self, kind: str) -> Token:
        """The next token, which must be of this kind."""
        token = self.token
        if token.kind != kind:
            self.fail(f"expected {_ARTICLES[kind]}, found {token.text!r}", token.start)
        return self.advance()

    def list(self, item: Callable[[], _Item], end: str) -> list[_Item]:
        """`item {',' item} end`, or just `end`."""
        items: list[_Item] = []
        while not self.accept(end):
            if items:
                self.expect(",")
            items.append(item())
        return items

    def integer(self) -> int:
        """A whole number of 64 bits."""
        token = self.take("int")
        digits = len(token.text.removeprefix("-"))
        if digits > MAX_DIGITS:
            self.fail(f"an integer of {digits} digits, {MAX_DIGITS} is the most", token.start)
        value = int(token.text)
        return value if fits_i64(value) else self.fail(f"{value} has more than 64 bits", token.start)

    def end(self) -> None:
        """There must be nothing left."""
        if self.token.kind != "end":
            self.fail(f"text after the graph: {self.token.text!r}", self.token.start)
