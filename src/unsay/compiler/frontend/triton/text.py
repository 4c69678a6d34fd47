"""Reads Triton IR in the generic form of MLIR, where every operation is spelled alike.

    module    "builtin.module"() ({ functions }) : () -> ()
    operation [%r[:n] {, %r} =] "name"(%a, %b#1) [<{..}>] [({region}, ..)] [{attributes}] : (types) -> types [loc(..)]
    region    { [^block(%a: type, ..):] operations }            one block each: Triton's control flow is structured

Nothing of an operation is understood here. What does not fit the grammar is an IrError with line and column.
Source: MLIR language reference, "Generic operation syntax".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias, TypeVar

from unsay.errors import IrError

MAX_DEPTH = 32

_SPACE = re.compile(r"(?:\s|//[^\n]*)+")
_BLANK = " \n\t\r/"
_VALUE = re.compile(r"%[A-Za-z0-9_$.\-]+(?:#[0-9]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_NUMBER = re.compile(r"-?(?:0x[0-9A-Fa-f]+|[0-9]+(?:\.[0-9]*(?:[eE][+-]?[0-9]+)?)?)")
_EXTENT = re.compile(r"([0-9]+)x")
_PLAIN_TYPE = re.compile(
    r"(?:tensor<(?:[0-9]+x)+(?:!tt\.ptr<[a-z0-9]+>|[a-z0-9]+)>|!tt\.ptr<[a-z0-9]+>|[a-z]+[0-9]+)(?![\w<])"
)
_LABEL = re.compile(r"\^[A-Za-z0-9_$.\-]+")

_FLOAT_BITS = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}

_Item = TypeVar("_Item")


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


@dataclass(eq=False, slots=True)
class Value:
    """A result or a block argument."""

    name: str
    type: Type


@dataclass(eq=False, slots=True)
class Op:
    """One operation; `location` is its (line, column)."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: dict[str, Attribute]
    blocks: tuple[Block, ...]
    location: tuple[int, int]

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute; raises IrError if it is not there."""
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise IrError(f"{self.name} needs an integer {name}, got {value!r}", *self.location)
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers; raises IrError if it is not there."""
        value = self.attributes.get(name)
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise IrError(f"{self.name} needs integers {name}, got {value!r}", *self.location)
        return value  # pyright: ignore[reportReturnType]


@dataclass(eq=False, slots=True)
class Block:
    """A region of one block."""

    arguments: tuple[Value, ...] = ()
    ops: list[Op] = field(default_factory=list[Op])


def parse(text: str) -> Op:
    """The module a text holds; its functions are the operations of its block."""
    reader = _Reader(text)
    module = reader.operation(0)
    reader.end()
    if module.name != "builtin.module" or len(module.blocks) != 1:
        raise IrError(f"expected one builtin.module, found {module.name}", *module.location)
    return module


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._scopes: list[dict[str, Value]] = [{}]
        self._types: dict[str, Type] = {}
        self._skip()

    def end(self) -> None:
        """After the module there are only aliases of locations, `#loc = loc(..)`."""
        while self._accept("#"):
            self._match(_NAME, "a name")
            self._expect("=")
            self._expect("loc")
            self._balanced()
        if self._position < len(self._text):
            self._fail(f"text after the module: {self._text[self._position : self._position + 20]!r}")

    def operation(self, depth: int) -> Op:
        """One operation with all inside it."""
        if depth > MAX_DEPTH:
            self._fail(f"regions nested more than {MAX_DEPTH} deep")
        names = self._result_names()
        location = self._location(self._position)
        name = self._string()
        self._expect("(")
        operands = tuple(self._list(self._operand, ")"))
        if self._accept("["):
            self._fail(f"{name} has successors: control flow must be structured (scf)")
        attributes: dict[str, Attribute] = {}
        if self._accept("<{"):
            attributes.update(self._entries("}"))
            self._expect(">")
        blocks = tuple(self._list(lambda: self._region(depth + 1), ")")) if self._accept("(") else ()
        if self._accept("{"):
            attributes.update(self._entries("}"))
        self._expect(":")
        takes, gives = self._function_type()
        self._skip_location()
        self._check(name, location, [operand.type for operand in operands], takes)
        return Op(name, operands, self._define(names, gives, name), attributes, blocks, location)

    def _check(self, name: str, location: tuple[int, int], given: list[Type], stated: tuple[Type, ...]) -> None:
        if tuple(given) != stated:
            raise IrError(f"{name} says it takes ({_types(stated)}), its operands are ({_types(given)})", *location)

    def _result_names(self) -> list[tuple[str, int]]:
        """Names with how many results each stands for."""
        names: list[tuple[str, int]] = []
        while self._text.startswith("%", self._position):
            name = self._match(_VALUE, "a value")
            names.append((name, int(self._match(_NUMBER, "a number")) if self._accept(":") else 1))
            if not self._accept(","):
                self._expect("=")
                break
        return names

    def _define(self, names: list[tuple[str, int]], types: tuple[Type, ...], name: str) -> tuple[Value, ...]:
        if sum(count for _, count in names) != len(types):
            self._fail(f"{name} has {len(types)} results, {sum(count for _, count in names)} are named")
        spelled = [f"{base}#{index}" if count > 1 else base for base, count in names for index in range(count)]
        values = tuple(Value(base, kind) for base, kind in zip(spelled, types, strict=True))
        for value in values:
            self._add(value)
        return values

    def _add(self, value: Value) -> None:
        if any(value.name in scope for scope in self._scopes):
            self._fail(f"{value.name} is defined twice")
        self._scopes[-1][value.name] = value

    def _operand(self) -> Value:
        start = self._position
        name = self._match(_VALUE, "a value")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise IrError(f"{name} is used before it is defined", *self._location(start))

    def _region(self, depth: int) -> Block:
        self._expect("{")
        self._scopes.append({})
        block = Block()
        if self._text.startswith("^", self._position):
            self._match(_LABEL, "a label")
            block.arguments = tuple(self._list(self._argument, ")")) if self._accept("(") else ()
            self._expect(":")
        while not self._accept("}"):
            if self._text.startswith("^", self._position):
                self._fail("a region of several blocks: control flow must be structured (scf)")
            block.ops.append(self.operation(depth))
        self._scopes.pop()
        return block

    def _argument(self) -> Value:
        name = self._match(_VALUE, "a value")
        self._expect(":")
        value = Value(name, self._type())
        self._skip_location()
        self._add(value)
        return value

    def _entries(self, end: str) -> dict[str, Attribute]:
        return dict(self._list(self._entry, end))

    def _entry(self) -> tuple[str, Attribute]:
        name = self._string() if self._text.startswith('"', self._position) else self._match(_NAME, "a name")
        return name, self._attribute(0) if self._accept("=") else True

    def _attribute(self, depth: int) -> Attribute:
        if depth > MAX_DEPTH:
            self._fail(f"attributes nested more than {MAX_DEPTH} deep")
        text, position = self._text, self._position
        if text.startswith('"', position):
            return self._string()
        if self._accept("["):
            return tuple(self._list(lambda: self._attribute(depth + 1), "]"))
        if self._accept("{"):
            return self._entries("}")
        if self._accept("@"):
            return self._string() if text.startswith('"', self._position) else self._match(_NAME, "a name")
        if self._accept("#"):
            name = self._match(_NAME, "a name")
            if text.startswith("<", self._position):
                self._balanced()
            return name
        if _NUMBER.match(text, position):
            return self._number()
        return self._word(depth)

    def _word(self, depth: int) -> Attribute:
        """true, false, dense<..>, array<..>, or a type."""
        for word, value in (("true", True), ("false", False), ("unit", True)):
            if self._accept_word(word):
                self._skip_type()
                return value
        if self._accept_word("dense"):
            return self._dense()
        if self._accept_word("array"):
            self._expect("<")
            self._type()
            if self._accept(":"):
                return tuple(self._list(lambda: self._attribute(depth + 1), ">"))
            self._expect(">")
            return ()
        if self._text.startswith("(", self._position):
            self._function_type()
            return None
        return self._type()

    def _dense(self) -> Dense:
        """Only one number for all is kept."""
        start = self._position
        self._expect("<")
        word = next((word for word in ("true", "false") if self._accept_word(word)), None)
        token = None if word else _NUMBER.match(self._text, self._position)
        if word is None and token is None:
            self._position = start
            self._balanced()
            self._skip_type()
            return Dense(None)
        if token is not None:
            self._position = token.end()
            self._skip()
        self._expect(">")
        self._expect(":")
        element = self._type().element
        return Dense(word == "true" if word else self._numeral(token[0] if token else "", element))

    def _number(self) -> int | float:
        digits = self._match(_NUMBER, "a number")
        kind = self._type().element if self._accept(":") else "i64"
        return self._numeral(digits, kind)

    def _numeral(self, digits: str, kind: str) -> int | float:
        """A number of a type; hexadecimal floats are bit patterns, as -inf and NaN are written."""
        if not kind.startswith(("f", "bf")):
            if "." in digits or "e" in digits.lower().replace("0x", ""):
                self._fail(f"{digits} as {kind}")
            return int(digits, 0)
        if not digits.startswith("0x"):
            return float(digits)
        if kind == "bf16":
            return struct.unpack("<f", struct.pack("<I", int(digits, 16) << 16))[0]
        if kind not in _FLOAT_BITS:
            self._fail(f"a number of {kind}")
        integer, real = _FLOAT_BITS[kind]
        try:
            return struct.unpack(real, struct.pack(integer, int(digits, 16)))[0]
        except struct.error:
            self._fail(f"{digits} has more bits than {kind}")

    def _function_type(self) -> tuple[tuple[Type, ...], tuple[Type, ...]]:
        self._expect("(")
        takes = tuple(self._list(self._type, ")"))
        self._expect("->")
        gives = tuple(self._list(self._type, ")")) if self._accept("(") else (self._type(),)
        return takes, gives

    def _type(self) -> Type:
        """A type; one spelled as another before it is looked up, since a kernel has few."""
        match = _PLAIN_TYPE.match(self._text, self._position)
        known = None if match is None else self._types.get(match[0])
        if known is None or match is None:
            known = self._new_type()
            if match is not None:
                self._types[match[0]] = known
            return known
        self._position = match.end()
        self._skip()
        return known

    def _new_type(self) -> Type:
        if self._accept_word("tensor"):
            self._expect("<")
            shape: list[int] = []
            while extent := _EXTENT.match(self._text, self._position):
                if len(extent[1]) > 9 or int(extent[1]) < 1:
                    self._fail(f"a dimension of {extent[1][:20]}")
                shape.append(int(extent[1]))
                self._position = extent.end()
            element = self._type()
            if self._accept(","):
                self._fail("a tensor with an encoding is TritonGPU IR; give Triton IR, before layouts are chosen")
            self._expect(">")
            return Type(element.element, tuple(shape), element.is_pointer)
        if self._accept("!"):
            return self._dialect_type()
        name = self._match(_NAME, "a type")
        return Type(name)

    def _dialect_type(self) -> Type:
        name = self._match(_NAME, "a type")
        if name != "tt.ptr":
            if self._text.startswith("<", self._position):
                self._balanced()
            return Type(f"!{name}")
        self._expect("<")
        inner = self._type()
        if self._accept(","):
            self._match(_NUMBER, "an address space")
        self._expect(">")
        return Type(str(inner) if inner.shape or inner.is_pointer else inner.element, (), True)

    def _skip_type(self) -> None:
        if self._accept(":"):
            self._type()

    def _skip_location(self) -> None:
        if self._accept_word("loc"):
            self._balanced()

    def _balanced(self) -> None:
        """Skip brackets and all inside them."""
        depth = 0
        while self._position < len(self._text):
            character = self._text[self._position]
            if character == '"':
                self._string()
                continue
            if self._text.startswith("->", self._position):
                self._position += 2
                continue
            depth += (character in "<([{") - (character in ">)]}")
            self._position += 1
            if depth == 0:
                self._skip()
                return
        self._fail("brackets that are never closed")

    def _string(self) -> str:
        match = _STRING.match(self._text, self._position)
        if match is None:
            self._fail(f"expected a string, found {self._found()}")
        self._position = match.end()
        self._skip()
        return match[1]

    def _list(self, item: Callable[[], _Item], end: str) -> list[_Item]:
        items: list[_Item] = []
        while not self._accept(end):
            if items:
                self._expect(",")
            items.append(item())
        return items

    def _match(self, pattern: re.Pattern[str], what: str) -> str:
        match = pattern.match(self._text, self._position)
        if match is None:
            self._fail(f"expected {what}, found {self._found()}")
        self._position = match.end()
        self._skip()
        return match[0]

    def _accept(self, mark: str) -> bool:
        if not self._text.startswith(mark, self._position):
            return False
        self._position += len(mark)
        self._skip()
        return True

    def _accept_word(self, word: str) -> bool:
        match = _NAME.match(self._text, self._position)
        return match is not None and match[0] == word and self._accept(word)

    def _expect(self, mark: str) -> None:
        if not self._accept(mark):
            self._fail(f"expected {mark!r}, found {self._found()}")

    def _skip(self) -> None:
        if self._text[self._position : self._position + 1] in _BLANK and (
            match := _SPACE.match(self._text, self._position)
        ):
            self._position = match.end()

    def _found(self) -> str:
        return repr(self._text[self._position : self._position + 20]) if self._position < len(self._text) else "the end"

    def _location(self, start: int) -> tuple[int, int]:
        return self._text.count("\n", 0, start) + 1, start - self._text.rfind("\n", 0, start)

    def _fail(self, message: str) -> NoReturn:
        raise IrError(message, *self._location(self._position))


def _types(types: list[Type] | tuple[Type, ...]) -> str:
    return ", ".join(map(str, types))
