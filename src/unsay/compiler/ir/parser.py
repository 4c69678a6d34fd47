"""Reads the text form of LLMIR (grammar: printer.py). What is wrong is an IrError with line and column."""

from __future__ import annotations

from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.dims import RELATIONS, Constraint, Dim, Formula
from unsay.compiler.ir.tokens import Tokens, grammar
from unsay.compiler.ir.type_parser import NAME, STRING, TYPE, TypeParser, named_dim, string
from unsay.compiler.ir.types import TensorType
from unsay.errors import IrError

_LANGUAGE = grammar(
    ("value", r"%[A-Za-z0-9_.\-]+"),
    ("float", r"-inf(?![A-Za-z0-9_.\-])|-?[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)"),
    ("int", r"-?[0-9]+"),
    ("string", STRING),
    ("type", TYPE),
    ("name", NAME),
    ("mark", r"\.\.|==|!=|<=|>=|[(){}\[\]<>=:,+*%\-]"),
)


def parse(text: str) -> Graph:
    """The graph a text stands for; SSA rules are checked here, the rules of each operation by dialect/verifier.py."""
    return _Parser(text).graph()


class _Parser(Tokens):
    def __init__(self, text: str) -> None:
        super().__init__(text, _LANGUAGE)
        self._values: dict[str, Value] = {}
        self._known_types: dict[str, TensorType] = {}
        self._graph = Graph("", ())

    def graph(self) -> Graph:
        """The whole text."""
        self.expect("graph")
        name = self.take("name").text
        self.expect("(")
        self._graph = Graph(name, self._dims())
        if self.accept("where"):
            self._graph.constraints = self._constraints()
        self._graph.location = self.location(self.token.start)
        if self.accept("sema"):
            self.expect("{")
            self._graph.sema = self._attributes()
        self.expect("{")
        while not self.accept("}"):
            self._operation()
        self.end()
        return self._graph

    def _dims(self) -> list[Dim]:
        return self.list(self._dim, ")")

    def _dim(self) -> Dim:
        token = self.take("name")
        self.expect(":")
        low = self.integer()
        self.expect("..")
        high = self.integer()
        if token.text == "x" or not 0 <= low <= high:
            self.fail(f"dimension {token.text}: {low}..{high} is not a range of sizes", token.start)
        if token.text in self._graph.dims:
            self.fail(f"dimension {token.text}: a dimension is declared twice", token.start)
        dim = Dim(token.text, low, high, self._formula() if self.accept("=") else None)
        self._graph.dims[dim.name] = dim
        return dim

    def _constraints(self) -> tuple[Constraint, ...]:
        constraints = [self._constraint()]
        while self.accept(","):
            constraints.append(self._constraint())
        return tuple(constraints)

    def _constraint(self) -> Constraint:
        bracket = self.accept("(")
        left = self._formula()
        if bracket:
            self.expect(")")
        modulus = self._modulus(left, bracket) if self.at("%") else None
        relation = self.advance()
        if relation.kind != "mark" or relation.text not in RELATIONS:
            self.fail(f"expected one of {' '.join(RELATIONS)}, found {relation.text!r}", relation.start)
        return Constraint(left, modulus, relation.text, self._formula())

    def _modulus(self, left: Formula, bracket: bool) -> int:
        if len(left.terms) > 1 and not bracket:
            self.fail("a sum before % needs brackets", self.token.start)
        self.expect("%")
        start, modulus = self.token.start, self.integer()
        return modulus if modulus > 0 else self.fail(f"a remainder by {modulus}", start)

    def _formula(self) -> Formula:
        """`['-'] term {('+' | '-') term}`; a minus may be part of the number after it."""
        start = self.token.start
        try:
            total = self._term()
            while self.at("+") or self.at("-") or (self.token.kind == "int" and self.token.text.startswith("-")):
                self.accept("+")
                total += self._term()
        except IrError as error:
            raise error if error.line else IrError(error.message, *self.location(start)) from error
        return total

    def _term(self) -> Formula:
        sign = formulas.number(-1 if self.accept("-") else 1)
        total = sign * self._factor()
        while self.accept("*"):
            total *= self._factor()
        return total

    def _factor(self) -> Formula:
        if self.token.kind == "int":
            return formulas.number(self.integer())
        return formulas.of(named_dim(self, self._graph.dims, self.take("name")))

    def _operation(self) -> None:
        start = self.token.start
        names = self._result_names()
        kind = self.take("name").text
        self.expect("(")
        operands = self.list(self._operand, ")")
        attributes = self._attributes() if self.accept("{") else {}
        types = self._types() if self.accept(":") else []
        if len(types) != len(names):
            self.fail(f"{kind} has {len(names)} results and {len(types)} types", start)
        results = list(zip(names, types, strict=True))
        operation = self._graph.add(kind, operands, attributes, results, location=self.location(start))
        self._values.update((value.name, value) for value in operation.results)

    def _result_names(self) -> list[str]:
        if self.token.kind != "value":
            return []
        names = self.list(self._new_name, "=")
        if len(set(names)) != len(names):
            self.fail("an operation names two results alike", self.token.start)
        return names

    def _new_name(self) -> str:
        token = self.take("value")
        if token.text[1:] in self._values:
            self.fail(f"{token.text} is defined twice", token.start)
        return token.text[1:]

    def _operand(self) -> Value:
        token = self.take("value")
        value = self._values.get(token.text[1:])
        if value is None:
            self.fail(f"{token.text} is used before it is defined", token.start)
        return value

    def _attributes(self) -> dict[str, AttributeValue]:
        start = self.token.start
        pairs = self.list(self._attribute, "}")
        if len(dict(pairs)) != len(pairs):
            self.fail("an attribute is given twice", start)
        return dict(pairs)

    def _attribute(self) -> tuple[str, AttributeValue]:
        name = self.take("name").text
        self.expect("=")
        return name, self._attribute_value()

    def _attribute_value(self) -> AttributeValue:
        if self.accept("["):
            return self._numbers()
        token = self.token
        if token.kind == "string":
            return string(self)
        if self.at("true") or self.at("false"):
            return self.accept("true") or not self.accept("false")
        return self._number()

    def _numbers(self) -> tuple[int, ...] | tuple[float, ...]:
        start = self.token.start
        numbers = self.list(self._number, "]")
        if len(set(map(type, numbers))) > 1:
            self.fail("a list has integers or floats, not both", start)
        return tuple(numbers)

    def _number(self) -> int | float:
        if self.accept("inf"):
            return float("inf")
        if self.token.kind == "float":
            return float(self.advance().text)
        return self.integer()

    def _types(self) -> list[TensorType]:
        types = [self._type()]
        while self.accept(","):
            types.append(self._type())
        return types

    def _type(self) -> TensorType:
        """Types repeat, so each text is read once."""
        token = self.take("type")
        known = self._known_types.get(token.text)
        if known is None:
            known = TypeParser(self, token, self._graph.dims).parse()
            self._known_types[token.text] = known
        return known
