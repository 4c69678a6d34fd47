"""Reads Triton IR in the generic form of MLIR, where every operation is spelled alike.

    module    "builtin.module"() ({ functions }) : () -> ()
    operation [%r[:n] {, %r} =] "name"(%a, %b#1) [<{..}>] [({region}, ..)] [{attributes}] : (types) -> types [loc(..)]
    region    { [^block(%a: type, ..):] operations }            one block each: Triton's control flow is structured

Nothing of an operation is understood here. What does not fit the grammar is an IrError with line and column.
Source: MLIR language reference, "Generic operation syntax".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from unsay.compiler.frontend.triton.attributes import Attribute, AttributeReader, Dense, Type
from unsay.compiler.frontend.triton.cursor import NAME
from unsay.errors import IrError

__all__ = ["Block", "Dense", "Op", "Type", "Value", "parse"]

_VALUE = re.compile(r"%[A-Za-z0-9_$.\-]+(?:#[0-9]+)?")
_COUNT = re.compile("[0-9]{1,4}")
_LABEL = re.compile(r"\^[A-Za-z0-9_$.\-]+")


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
    module = reader.operation()
    reader.end()
    if module.name != "builtin.module" or len(module.blocks) != 1:
        raise IrError(f"expected one builtin.module, found {module.name}", *module.location)
    return module


class _Reader(AttributeReader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._scopes: list[dict[str, Value]] = [{}]

    def end(self) -> None:
        """After the module there are only aliases of locations, `#loc = loc(..)`."""
        while self.accept("#"):
            self.match(NAME, "a name")
            self.expect("=")
            self.expect("loc")
            self.balanced()
        if self.position < len(self.text):
            self.fail(f"text after the module: {self.text[self.position : self.position + 20]!r}")

    def operation(self) -> Op:
        """One operation with all inside it."""
        names = self._result_names()
        location = self.location(self.position)
        name = self.string()
        self.expect("(")
        operands = tuple(self.items(self._operand, ")"))
        if self.accept("["):
            self.fail(f"{name} has successors: control flow must be structured (scf)")
        attributes: dict[str, Attribute] = {}
        if self.accept("<{"):
            attributes.update(self.entries("}"))
            self.expect(">")
        blocks = tuple(self.items(lambda: self.nested(self._region), ")")) if self.accept("(") else ()
        if self.accept("{"):
            attributes.update(self.entries("}"))
        self.expect(":")
        takes, gives = self.function_type()
        self._skip_location()
        self._check(name, location, [operand.type for operand in operands], takes)
        return Op(name, operands, self._define(names, gives, name), attributes, blocks, location)

    def _check(self, name: str, location: tuple[int, int], given: list[Type], stated: tuple[Type, ...]) -> None:
        if tuple(given) != stated:
            raise IrError(f"{name} says it takes ({_types(stated)}), its operands are ({_types(given)})", *location)

    def _result_names(self) -> list[tuple[str, int]]:
        """Names with how many results each stands for."""
        names: list[tuple[str, int]] = []
        while self.at("%"):
            name = self.match(_VALUE, "a value")
            names.append((name, int(self.match(_COUNT, "a number")) if self.accept(":") else 1))
            if not self.accept(","):
                self.expect("=")
                break
        return names

    def _define(self, names: list[tuple[str, int]], types: tuple[Type, ...], name: str) -> tuple[Value, ...]:
        if sum(count for _, count in names) != len(types):
            self.fail(f"{name} has {len(types)} results, {sum(count for _, count in names)} are named")
        spelled = [f"{base}#{index}" if count > 1 else base for base, count in names for index in range(count)]
        values = tuple(Value(base, kind) for base, kind in zip(spelled, types, strict=True))
        for value in values:
            self._add(value)
        return values

    def _add(self, value: Value) -> None:
        if any(value.name in scope for scope in self._scopes):
            self.fail(f"{value.name} is defined twice")
        self._scopes[-1][value.name] = value

    def _operand(self) -> Value:
        start = self.position
        name = self.match(_VALUE, "a value")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        raise IrError(f"{name} is used before it is defined", *self.location(start))

    def _region(self) -> Block:
        self.expect("{")
        self._scopes.append({})
        block = Block()
        if self.at("^"):
            self.match(_LABEL, "a label")
            block.arguments = tuple(self.items(self._argument, ")")) if self.accept("(") else ()
            self.expect(":")
        while not self.accept("}"):
            if self.at("^"):
                self.fail("a region of several blocks: control flow must be structured (scf)")
            block.ops.append(self.operation())
        self._scopes.pop()
        return block

    def _argument(self) -> Value:
        name = self.match(_VALUE, "a value")
        self.expect(":")
        value = Value(name, self.type())
        self._skip_location()
        self._add(value)
        return value

    def _skip_location(self) -> None:
        if self.accept_word("loc"):
            self.balanced()


def _types(types: list[Type] | tuple[Type, ...]) -> str:
    return ", ".join(map(str, types))
