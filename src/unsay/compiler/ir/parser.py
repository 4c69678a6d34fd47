"""Reads the text form of LLMIR (grammar: printer.py). What is wrong is an IrError with line and column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.dims import RELATIONS, Constraint, Formula
from unsay.compiler.ir.types import DEVICES, DTYPES, ROW, Dim, Extent, TensorType, fits_layout, is_layout
from unsay.errors import IrError

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|//[^\n]*)+)
      | (?P<value>%[A-Za-z0-9_.\-]+)
      | (?P<float>-inf(?![A-Za-z0-9_.\-])|-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
      | (?P<int>-?[0-9]+)
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<name>[A-Za-z_][A-Za-z0-9_.\-]*)
      | (?P<mark>\.\.|==|!=|<=|>=|[(){}\[\]<>=:,+*%\-])
    """,
    re.VERBOSE,
)

_MAX_DIGITS = 18
_ARTICLES = {"name": "a name", "value": "a value", "int": "a number or a string", "string": "a string"}

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int


def parse(text: str) -> Graph:
    """The graph a text stands for; SSA rules are checked here, the rules of each operation by dialect/verifier.py."""
    return _Parser(text).graph()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._next = 0
        self._values: dict[str, Value] = {}
        self._graph = Graph("", ())

    def _scan(self) -> list[_Token]:
        tokens: list[_Token] = []
        start = 0
        while start < len(self._text):
            match = _TOKEN.match(self._text, start)
            if match is None:
                self._fail(f"no token begins with {self._text[start]!r}", start)
            kind = match.lastgroup or ""
            if kind != "space":
                tokens.append(_Token(kind, match[0], start))
            start = match.end()
        return [*tokens, _Token("end", "end of text", len(self._text))]

    def _location(self, start: int) -> tuple[int, int]:
        return self._text.count("\n", 0, start) + 1, start - self._text.rfind("\n", 0, start)

    def _fail(self, message: str, start: int) -> NoReturn:
        raise IrError(message, *self._location(start))

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    @property
    def _following(self) -> _Token:
        return self._tokens[min(self._next + 1, len(self._tokens) - 1)]

    def _at(self, text: str) -> bool:
        return self._token.text == text and self._token.kind in ("mark", "name")

    def _accept(self, text: str) -> bool:
        found = self._at(text)
        self._next += found
        return found

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._fail(f"expected {text!r}, found {self._token.text!r}", self._token.start)

    def _take(self, kind: str) -> _Token:
        token = self._token
        if token.kind != kind:
            self._fail(f"expected {_ARTICLES[kind]}, found {token.text!r}", token.start)
        self._next += 1
        return token

    def _list(self, item: Callable[[], _Item], end: str) -> list[_Item]:
        """`item {',' item} end`, or just `end`."""
        items: list[_Item] = []
        while not self._accept(end):
            if items:
                self._expect(",")
            items.append(item())
        return items

    def graph(self) -> Graph:
        """The whole text."""
        self._expect("graph")
        name = self._take("name").text
        self._expect("(")
        self._graph = Graph(name, self._dims())
        if self._accept("where"):
            self._graph.constraints = self._constraints()
        self._graph.location = self._location(self._token.start)
        if self._accept("sema"):
            self._expect("{")
            self._graph.sema = self._attributes()
        self._expect("{")
        while not self._accept("}"):
            self._operation()
        if self._token.kind != "end":
            self._fail(f"text after the graph: {self._token.text!r}", self._token.start)
        return self._graph

    def _dims(self) -> list[Dim]:
        return self._list(self._dim, ")")

    def _dim(self) -> Dim:
        token = self._take("name")
        self._expect(":")
        low = self._integer()
        self._expect("..")
        high = self._integer()
        if token.text == "x" or not 0 <= low <= high:
            self._fail(f"dimension {token.text}: {low}..{high} is not a range of sizes", token.start)
        if token.text in self._graph.dims:
            self._fail(f"dimension {token.text}: a dimension is declared twice", token.start)
        dim = Dim(token.text, low, high, self._formula() if self._accept("=") else None)
        self._graph.dims[dim.name] = dim
        return dim

    def _constraints(self) -> tuple[Constraint, ...]:
        constraints = [self._constraint()]
        while self._accept(","):
            constraints.append(self._constraint())
        return tuple(constraints)

    def _constraint(self) -> Constraint:
        bracket = self._accept("(")
        left = self._formula()
        if bracket:
            self._expect(")")
        modulus = self._modulus(left, bracket) if self._at("%") else None
        relation = self._token
        if relation.kind != "mark" or relation.text not in RELATIONS:
            self._fail(f"expected one of {' '.join(RELATIONS)}, found {relation.text!r}", relation.start)
        self._next += 1
        return Constraint(left, modulus, relation.text, self._formula())

    def _modulus(self, left: Formula, bracket: bool) -> int:
        if len(left.terms) > 1 and not bracket:
            self._fail("a sum before % needs brackets", self._token.start)
        self._expect("%")
        start, modulus = self._token.start, self._integer()
        return modulus if modulus > 0 else self._fail(f"a remainder by {modulus}", start)

    def _formula(self) -> Formula:
        """`['-'] term {('+' | '-') term}`; a minus may be part of the number after it."""
        total = self._term()
        while self._at("+") or self._at("-") or (self._token.kind == "int" and self._token.text.startswith("-")):
            self._accept("+")
            total += self._term()
        return total

    def _term(self) -> Formula:
        sign = formulas.number(-1 if self._accept("-") else 1)
        total = sign * self._factor()
        while self._accept("*"):
            total *= self._factor()
        return total

    def _factor(self) -> Formula:
        if self._token.kind == "int":
            return formulas.number(self._integer())
        return formulas.of(self._named_dim(self._take("name")))

    def _named_dim(self, token: _Token) -> Dim:
        dim = self._graph.dims.get(token.text)
        if dim is None:
            self._fail(f"dimension {token.text!r}, known are {', '.join(self._graph.dims)}", token.start)
        return dim

    def _operation(self) -> None:
        start = self._token.start
        names = self._result_names()
        kind = self._take("name").text
        self._expect("(")
        operands = self._list(self._operand, ")")
        attributes = self._attributes() if self._accept("{") else {}
        types = self._types() if self._accept(":") else []
        if len(types) != len(names):
            self._fail(f"{kind} has {len(names)} results and {len(types)} types", start)
        results = list(zip(names, types, strict=True))
        operation = self._graph.add(kind, operands, attributes, results, location=self._location(start))
        self._values.update((value.name, value) for value in operation.results)

    def _result_names(self) -> list[str]:
        if self._token.kind != "value":
            return []
        names = self._list(self._new_name, "=")
        if len(set(names)) != len(names):
            self._fail("an operation names two results alike", self._token.start)
        return names

    def _new_name(self) -> str:
        token = self._take("value")
        if token.text[1:] in self._values:
            self._fail(f"{token.text} is defined twice", token.start)
        return token.text[1:]

    def _operand(self) -> Value:
        token = self._take("value")
        value = self._values.get(token.text[1:])
        if value is None:
            self._fail(f"{token.text} is used before it is defined", token.start)
        return value

    def _attributes(self) -> dict[str, AttributeValue]:
        start = self._token.start
        pairs = self._list(self._attribute, "}")
        if len(dict(pairs)) != len(pairs):
            self._fail("an attribute is given twice", start)
        return dict(pairs)

    def _attribute(self) -> tuple[str, AttributeValue]:
        name = self._take("name").text
        self._expect("=")
        return name, self._attribute_value()

    def _attribute_value(self) -> AttributeValue:
        if self._accept("["):
            return self._numbers()
        token = self._token
        if token.kind == "string":
            return self._string()
        if self._at("true") or self._at("false"):
            return self._accept("true") or not self._accept("false")
        return self._number()

    def _numbers(self) -> tuple[int, ...] | tuple[float, ...]:
        start = self._token.start
        numbers = self._list(self._number, "]")
        if len(set(map(type, numbers))) > 1:
            self._fail("a list has integers or floats, not both", start)
        return tuple(numbers)

    def _number(self) -> int | float:
        if self._accept("inf"):
            return float("inf")
        if self._token.kind == "float":
            self._next += 1
            return float(self._tokens[self._next - 1].text)
        return self._integer()

    def _integer(self) -> int:
        token = self._take("int")
        if len(token.text) > _MAX_DIGITS:
            self._fail(f"an integer of {len(token.text)} digits, {_MAX_DIGITS} is the most", token.start)
        return int(token.text)

    def _string(self) -> str:
        token = self._take("string")
        try:
            return str(json.loads(token.text))
        except ValueError as error:
            self._fail(f"not a JSON string: {error}", token.start)

    def _types(self) -> list[TensorType]:
        types = [self._type()]
        while self._accept(","):
            types.append(self._type())
        return types

    def _type(self) -> TensorType:
        self._expect("tensor")
        start = self._token.start
        self._expect("<")
        dims: list[Extent] = []
        while self._following.text == "x":
            dims.append(self._extent())
            self._expect("x")
        token = self._take("name")
        dtype = DTYPES.get(token.text)
        if dtype is None:
            self._fail(f"element type {token.text!r}, known are {', '.join(DTYPES)}", token.start)
        tensor_type = TensorType(tuple(dims), dtype, **self._type_options())
        if not fits_layout(tensor_type):
            self._fail(f"layout {tensor_type.layout!r} does not fit rank {tensor_type.rank}", start)
        return tensor_type

    def _extent(self) -> Extent:
        token = self._token
        if token.kind == "int":
            extent = self._integer()
            return extent if extent > 0 else self._fail(f"a dimension of {extent}", token.start)
        self._next += 1
        return self._named_dim(token)

    def _type_options(self) -> dict[str, str]:
        options = {"layout": ROW, "device": "cpu"}
        while not self._accept(">"):
            self._expect(",")
            name = self._take("name")
            self._expect("=")
            start, value = self._token.start, self._string()
            if name.text not in options:
                self._fail(f"a type has no {name.text!r}", name.start)
            if not (is_layout(value) if name.text == "layout" else value in DEVICES):
                self._fail(f"{name.text} {value!r} is not known", start)
            options[name.text] = value
        return options
