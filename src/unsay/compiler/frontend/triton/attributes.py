"""Types and attributes of Triton IR, as far as they are needed; the others are read over."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from unsay.compiler.frontend.triton.cursor import NAME, Cursor

MAX_DEPTH = 32

_Item = TypeVar("_Item")

_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?)?)")
_EXTENT = re.compile(r"([0-9]+)x")
_PLAIN_TYPE = re.compile(
    r"(?:tensor<(?:[0-9]+x)+(?:!tt\.ptr<[a-z0-9]+>|[a-z0-9]+)>|!tt\.ptr<[a-z0-9]+>|[a-z]+[0-9]+)(?![\w<])"
)

_MAX_DIGITS = 40
_FLOAT_BITS = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}


@dataclass(frozen=True, slots=True)
class Type:
    """`tensor<8x16x!tt.ptr<f32>>` has shape (8, 16), element f32, is_pointer; a scalar has shape ()."""

    element: str
    shape: tuple[int, ...] = ()
    is_pointer: bool = False

    def __str__(self) -> str:
        element = f"!tt.ptr<{self.element}>" if self.is_pointer else self.element
        return f"tensor<{'x'.join(map(str, self.shape))}x{element}>" if self.shape else element


@dataclass(frozen=True, slots=True)
class Dense:
    """`dense<1.0>`: one number for all elements; a list of numbers is refused by who reads it."""

    value: int | float | bool | None


Attribute: TypeAlias = "int | float | bool | str | Dense | Type | tuple[Attribute, ...] | dict[str, Attribute] | None"


class AttributeReader(Cursor):
    """Reads types and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._types: dict[str, Type] = {}
        self._depth = 0

    def nested(self, read: Callable[[], _Item]) -> _Item:
        """What is read, one level deeper; an IrError beyond the deepest allowed."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"nested more than {MAX_DEPTH} deep")
        made = read()
        self._depth -= 1
        return made

    def entries(self, end: str) -> dict[str, Attribute]:
        """`name = attribute, name, ..` up to `end`; a name alone is true."""
        return dict(self.items(self._entry, end))

    def _entry(self) -> tuple[str, Attribute]:
        name = self.string() if self.at('"') else self.match(NAME, "a name")
        return name, self.nested(self._attribute) if self.accept("=") else True

    def _attribute(self) -> Attribute:
        text, position = self.text, self.position
        if text.startswith('"', position):
            return self.string()
        if self.accept("["):
            return tuple(self.items(lambda: self.nested(self._attribute), "]"))
        if self.accept("{"):
            return self.entries("}")
        if self.accept("@"):
            return self.string() if text.startswith('"', self.position) else self.match(NAME, "a name")
        if self.accept("#"):
            name = self.match(NAME, "a name")
            if text.startswith("<", self.position):
                self.balanced()
            return name
        if _NUMBER.match(text, position):
            return self._number()
        return self._word()

    def _word(self) -> Attribute:
        """true, false, dense<..>, array<..>, or a type."""
        for word, value in (("true", True), ("false", False), ("unit", True)):
            if self.accept_word(word):
                self._skip_type()
                return value
        if self.accept_word("dense"):
            return self._dense()
        if self.accept_word("array"):
            self.expect("<")
            self.type()
            if self.accept(":"):
                return tuple(self.items(lambda: self.nested(self._attribute), ">"))
            self.expect(">")
            return ()
        if self.at("("):
            self.function_type()
            return None
        return self.type()

    def _dense(self) -> Dense:
        """Only one number for all is kept."""
        start = self.position
        self.expect("<")
        word = next((word for word in ("true", "false") if self.accept_word(word)), None)
        token = None if word else _NUMBER.match(self.text, self.position)
        if word is None and token is None:
            self.position = start
            self.balanced()
            self._skip_type()
            return Dense(None)
        if token is not None:
            self.position = token.end()
            self.skip()
        self.expect(">")
        self.expect(":")
        element = self.type().element
        return Dense(word == "true" if word else self._numeral(token[0] if token else "", element))

    def _number(self) -> int | float:
        digits = self.match(_NUMBER, "a number")
        kind = self.type().element if self.accept(":") else "i64"
        return self._numeral(digits, kind)

    def _numeral(self, digits: str, kind: str) -> int | float:
        """A number of a type; hexadecimal floats are bit patterns, as -inf and NaN are written."""
        if len(digits) > _MAX_DIGITS:
            self.fail(f"a number of {len(digits)} characters")
        if not kind.startswith(("f", "bf")):
            if "." in digits or "e" in digits.lower().replace("0x", ""):
                self.fail(f"{digits} as {kind}")
            return int(digits, 16 if "0x" in digits else 10)
        if not digits.startswith("0x"):
            return float(digits)
        if kind == "bf16":
            return struct.unpack("<f", struct.pack("<I", int(digits, 16) << 16))[0]
        if kind not in _FLOAT_BITS:
            self.fail(f"a number of {kind}")
        integer, real = _FLOAT_BITS[kind]
        try:
            return struct.unpack(real, struct.pack(integer, int(digits, 16)))[0]
        except struct.error:
            self.fail(f"{digits} has more bits than {kind}")

    def function_type(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        """`(types) -> type`, or `-> (types)`."""
        self.expect("(")
        takes = tuple(self.items(self.type, ")"))
        self.expect("->")
        gives = tuple(self.items(self.type, ")")) if self.accept("(") else (self.type(),)
        return takes, gives

    def type(self) -> Type:
        """A type; one spelled as another before it is looked up, since a kernel has few."""
        match = _PLAIN_TYPE.match(self.text, self.position)
        known = None if match is None else self._types.get(match[0])
        if known is None or match is None:
            known = self.nested(self._new_type)
            if match is not None:
                self._types[match[0]] = known
            return known
        self.position = match.end()
        self.skip()
        return known

    def _new_type(self) -> Type:
        if self.accept_word("tensor"):
            self.expect("<")
            shape: list[int] = []
            while extent := _EXTENT.match(self.text, self.position):
                if len(extent[1]) > 9 or int(extent[1]) < 1:
                    self.fail(f"a dimension of {extent[1][:20]}")
                shape.append(int(extent[1]))
                self.position = extent.end()
            element = self.type()
            if self.accept(","):
                self.fail("a tensor with an encoding is TritonGPU IR; give Triton IR, before layouts are chosen")
            self.expect(">")
            return Type(element.element, tuple(shape), element.is_pointer)
        if self.accept("!"):
            return self._dialect_type()
        name = self.match(NAME, "a type")
        return Type(name)

    def _dialect_type(self) -> Type:
        name = self.match(NAME, "a type")
        if name != "tt.ptr":
            if self.at("<"):
                self.balanced()
            return Type(f"!{name}")
        self.expect("<")
        inner = self.type()
        if self.accept(","):
            self.match(_NUMBER, "an address space")
        self.expect(">")
        return Type(str(inner) if inner.shape or inner.is_pointer else inner.element, (), True)

    def _skip_type(self) -> None:
        if self.accept(":"):
            self.type()
