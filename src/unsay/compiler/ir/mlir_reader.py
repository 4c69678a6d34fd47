"""Reads LLMIR in the generic form of MLIR, as ir/mlir.py writes it, and as MLIR and xDSL print that again.

They rename values, and may spell numbers and strings otherwise. What is wrong is an IrError with line and column.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.mlir import BUILTIN, Attribute
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.tokens import MAX_DIGITS, Tokens, grammar
from unsay.compiler.ir.types import DEVICES, DTYPES, ROW, Extent, TensorType, fits_layout, is_layout
from unsay.errors import IrError

_DTYPES = {name: dtype for dtype, name in BUILTIN.items()}

_LANGUAGE = grammar(
    ("value", r"%[A-Za-z0-9_$.\-]+"),
    ("hex", r"0x[0-9A-Fa-f]{16}"),
    ("shape", r"(?:[0-9]+x|\?x)+"),
    ("float", r"-?[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?"),
    ("int", r"-?[0-9]+"),
    ("string", r'"(?:[^"\\\n]|\\.)*"'),
    ("name", r"[A-Za-z_!][A-Za-z0-9_$.]*"),
    ("mark", r"->|[(){}\[\]<>=:,]"),
)


def from_mlir(text: str) -> Graph:
    """The graph in a module of one; raises IrError with line and column. Rules of operations: dialect/verifier.py."""
    return _Reader(text).module()


@dataclass(frozen=True, slots=True)
class _Raw:
    """An operation whose types are not resolved yet: the dimensions they name come after it."""

    kind: str
    names: list[str]
    operands: list[tuple[str, int]]
    attributes: dict[str, Attribute]
    types: list[_RawType]
    start: int


@dataclass(frozen=True, slots=True)
class _RawType:
    extents: tuple[str, ...]
    element: str
    encoding: dict[str, Attribute]
    start: int


class _Reader(Tokens):
    def __init__(self, text: str) -> None:
        super().__init__(text, _LANGUAGE)
        self._values: dict[str, Value] = {}

    def module(self) -> Graph:
        self._named("builtin.module")
        self._open()
        graph = self._graph()
        self._close()
        self.end()
        return graph

    def _graph(self) -> Graph:
        start = self.token.start
        self._named("llmir.graph")
        self._open()
        operations: list[_Raw] = []
        while not self.at("}"):
            operations.append(self._operation())
        attributes = self._close()
        graph = self._head(attributes, start)
        for operation in operations:
            self._add(graph, operation)
        return graph

    def _head(self, attributes: dict[str, Attribute], start: int) -> Graph:
        """The graph without operations."""
        name, dims, where = (attributes.get(key, "") for key in ("name", "dims", "where"))
        if any(mark in f"{name}{dims}{where}" for mark in "{}/"):
            self.fail("the head of the graph has more in it than name, dims and where", start)
        try:
            graph = parse(f"graph {name}({dims}) {f'where {where}' if where else ''} {{}}")
        except IrError as error:
            self.fail(f"the head of the graph: {error}", start)
        sema = attributes.get("sema", {})
        if not isinstance(sema, dict):
            self.fail(f"sema must be a dictionary, got {sema!r}", start)
        graph.sema = self._plain(sema, start)
        graph.location = self.location(start)
        return graph

    def _named(self, name: str) -> None:
        token = self.take("string")
        if self._text_of(token.text) != name:
            self.fail(f'expected "{name}", found {token.text}', token.start)

    def _open(self) -> None:
        """`() ({`"""
        for mark in "()({":
            self.expect(mark)

    def _close(self) -> dict[str, Attribute]:
        """`}) {attributes} : () -> ()`"""
        self.expect("}")
        self.expect(")")
        attributes = self._dictionary() if self.accept("{") else {}
        for mark in (":", "(", ")", "->", "(", ")"):
            self.expect(mark)
        return attributes

    def _operation(self) -> _Raw:
        start = self.token.start
        names = self.list(lambda: self.take("value").text, "=") if self.token.kind == "value" else []
        token = self.take("string")
        dialect, _, kind = self._text_of(token.text).partition(".")
        if dialect != "llmir":
            self.fail(f"expected an operation of llmir, found {token.text}", token.start)
        self.expect("(")
        operands = self.list(self._operand, ")")
        attributes = self._dictionary() if self.accept("{") else {}
        self.expect(":")
        self.expect("(")
        self.list(self._type, ")")
        self.expect("->")
        types = self.list(self._type, ")") if self.accept("(") else [self._type()]
        if len(types) != len(names):
            self.fail(f"{kind} has {len(names)} results and {len(types)} types", start)
        return _Raw(kind, names, operands, attributes, types, start)

    def _operand(self) -> tuple[str, int]:
        token = self.take("value")
        return token.text, token.start

    def _add(self, graph: Graph, raw: _Raw) -> None:
        operands: list[Value] = []
        for name, start in raw.operands:
            if name not in self._values:
                self.fail(f"{name} is used before it is defined", start)
            operands.append(self._values[name])
        results = [
            (name[1:].removeprefix("_"), self._resolved(graph, kind))
            for name, kind in zip(raw.names, raw.types, strict=True)
        ]
        attributes = self._plain(raw.attributes, raw.start)
        operation = graph.add(raw.kind, operands, attributes, results, location=self.location(raw.start))
        for name, value in zip(raw.names, operation.results, strict=True):
            if name in self._values:
                self.fail(f"{name} is defined twice", raw.start)
            self._values[name] = value

    def _plain(self, attributes: Mapping[str, Attribute], start: int) -> dict[str, AttributeValue]:
        plain: dict[str, AttributeValue] = {}
        for name, value in attributes.items():
            if isinstance(value, dict) or (isinstance(value, tuple) and any(isinstance(item, str) for item in value)):
                self.fail(f"{name} is a number, a string, a bool or a list of numbers, got {value!r}", start)
            plain[name] = value  # pyright: ignore[reportArgumentType]
        return plain

    def _type(self) -> _RawType:
        start = self.token.start
        self.expect("tensor")
        self.expect("<")
        extents = self.advance().text[:-1].split("x") if self.token.kind == "shape" else []
        if any(len(extent) > MAX_DIGITS for extent in extents):
            self.fail(f"a dimension of more than {MAX_DIGITS} digits", start)
        element = self.take("name").text
        encoding: dict[str, Attribute] = {}
        if self.accept(","):
            self.expect("{")
            encoding = self._dictionary()
        self.expect(">")
        return _RawType(tuple(extents), element, encoding, start)

    def _resolved(self, graph: Graph, raw: _RawType) -> TensorType:
        names = raw.encoding.get("dims", ())
        if not isinstance(names, tuple) or len(names) != raw.extents.count("?"):
            self.fail(f"dims must name the {raw.extents.count('?')} dynamic dimensions, got {names!r}", raw.start)
        dynamic = iter(names)
        dims = tuple(
            self._extent(graph, next(dynamic) if text == "?" else int(text), raw.start) for text in raw.extents
        )
        dtype = _DTYPES.get(raw.element) or DTYPES.get(raw.element.removeprefix("!llmir."))
        if dtype is None:
            self.fail(f"element type {raw.element!r}, known are {', '.join((*_DTYPES, *DTYPES))}", raw.start)
        layout, device = (str(raw.encoding.get(key, default)) for key, default in (("layout", ROW), ("device", "cpu")))
        tensor_type = TensorType(dims, dtype, layout, device)
        if not is_layout(layout) or device not in DEVICES or not fits_layout(tensor_type):
            self.fail(f"layout {layout!r} on device {device!r} is not known for rank {tensor_type.rank}", raw.start)
        return tensor_type

    def _extent(self, graph: Graph, extent: object, start: int) -> Extent:
        if isinstance(extent, int):
            return extent if extent > 0 else self.fail(f"a dimension of {extent}", start)
        dim = graph.dims.get(str(extent))
        return dim if dim is not None else self.fail(f"dimension {extent!r}, known are {', '.join(graph.dims)}", start)

    def _dictionary(self, nested: bool = False) -> dict[str, Attribute]:
        """Entries to the closing brace; a dictionary may hold dictionaries, those may not."""
        return dict(self.list(lambda: self._entry(nested), "}"))

    def _entry(self, nested: bool) -> tuple[str, Attribute]:
        name = self._text_of(self.advance().text) if self.token.kind == "string" else self.take("name").text
        self.expect("=")
        return name, self._attribute(nested)

    def _attribute(self, nested: bool) -> Attribute:
        if self.at("{") and not nested:
            self.accept("{")
            return self._dictionary(nested=True)
        if self.accept("["):
            return tuple(self.list(self._item, "]"))  # pyright: ignore[reportReturnType]
        if self.accept("array"):
            return self._array()
        if self.at("true") or self.at("false"):
            return self.advance().text == "true"
        if self.token.kind == "string":
            return self._text_of(self.advance().text)
        return self._number()

    def _item(self) -> int | float | str:
        return self._text_of(self.advance().text) if self.token.kind == "string" else self._number()

    def _array(self) -> tuple[int, ...] | tuple[float, ...]:
        self.expect("<")
        is_float = self.take("name").text == "f64"
        numbers = self.list(lambda: self._numeral(is_float), ">") if self.accept(":") else []
        if not numbers:
            self.accept(">")
        return tuple(numbers)

    def _number(self) -> int | float:
        """`5 : i64`, `0.5 : f64`; without a type, a point makes it a float."""
        token = self.token
        value = self._numeral(token.kind == "float")
        if not self.accept(":"):
            return value
        is_float = self.take("name").text == "f64"
        return struct.unpack(">d", struct.pack(">Q", value))[0] if is_float and token.kind == "hex" else value

    def _numeral(self, is_float: bool) -> int | float:
        token = self.token
        if token.kind == "hex":
            bits = int(self.advance().text, 16)
            return struct.unpack(">d", struct.pack(">Q", bits))[0] if is_float else bits
        if token.kind == "float":
            return float(self.advance().text)
        return float(self.integer()) if is_float else self.integer()

    def _text_of(self, token: str) -> str:
        """What a string says: \\n, \\t, \\", \\\\ or two hexadecimal digits for a byte."""
        named = {"n": b"\n", "t": b"\t", '"': b'"', "\\": b"\\"}

        def byte(match: re.Match[bytes]) -> bytes:
            escape = match[1].decode()
            return named.get(escape) or bytes([int(escape, 16)])

        raw = re.sub(rb'\\([nt"\\]|[0-9A-Fa-f]{2})', byte, token[1:-1].encode("utf-8", "surrogatepass"))
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            self.fail(f"a string that is not UTF-8: {error.reason}", self.token.start)
