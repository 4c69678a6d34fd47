"""Equations between terms, written as Python expressions, and their instances.

    linear_add(r, x, w, *bias) == add(r, linear(x, w, *bias))
    attention(c, q, k, v, output='q8a', **rest) == quantise(attention(c, q, k, v, output='f32', **rest), output='q8a')
    qkv(x, wq, wk, wv, head_dim=d, ...)[0] == ...

Positional names are terms, `*name` any number of them at the end; keywords are attributes: a name stands for any
value, a constant for itself, `**name` for all attributes not written; [i] is the i-th result. A name written twice
stands for the same thing, `(r := reshape(x))` names a part, `not_` is `not`. On the right an attribute may be any
Python expression over the names. Operands of operations that commute match in either order; that they do commute has
axioms of its own.

`where` is a Python expression over the names and `result`, the term on the left; a term has kind, dtype, layout, rank
and type; `number(t)` is the number that all elements of a constant are, or None; `brief(f)` is f in 12 digits.

An instance is the equation with terms put in for its names. The types on the right are inferred by the shape rules,
so an instance that is not well typed is not made.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, TypeAlias

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import AttributeValue
from unsay.compiler.ir.types import ROW, Dim, TensorType, paired
from unsay.compiler.verify.terms import CACHE, Term, Terms

Binding: TypeAlias = dict[str, Any]
"""What the names of an equation stand for: terms, tuples of terms, attribute values, dicts of attributes."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name for a term, or for the rest of the operands."""

    name: str
    starred: bool = False


@dataclass(frozen=True, slots=True)
class Apply:
    """An operation applied to patterns; an attribute is a constant, a Name for any value, or an expression."""

    kind: str
    operands: tuple[Pattern, ...]
    attributes: tuple[tuple[str, AttributeValue | Name | CodeType], ...]
    rest: str | None
    index: int
    alias: str | None


Pattern: TypeAlias = Name | Apply

COMMUTE = frozenset({"add", "mul", "maximum", "minimum"})


class Equation:
    """`left == right where condition`: both sides compute the same; used from left to right."""

    __slots__ = ("_condition", "_lefts", "left", "permutes", "right", "text", "where")

    def __init__(self, text: str, where: str = "True") -> None:
        self.text = text
        self.where = where
        left, right = _sides(text)
        assert isinstance(left, Apply), text
        self.left, self.right = left, right
        self.permutes = isinstance(right, Apply) and left.kind == right.kind and _names(left) == _names(right)
        self._lefts = [left] if self.permutes else list(_orders(left))
        self._condition: CodeType = compile(where, "<where>", "eval")

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the terms it may apply to."""
        return frozenset({self.left.kind})

    def match(self, term: Term) -> Binding | None:
        """What the names stand for if the term is an instance of the left side."""
        for left in self._lefts:
            found: Binding = {}
            if _match(left, term, found):
                found["result"] = term
                if evaluated(self._condition, found):
                    return found
        return None

    def apply(self, builder: Builder, term: Term) -> Term | None:
        """The right side if the term is an instance of the left; None too if it only swaps operands in order."""
        found = self.match(term)
        if found is None:
            return None
        right = builder.build(self.right, found)
        return None if self.permutes and _numbers(right) > _numbers(term) else right

    def __repr__(self) -> str:
        return self.text if self.where == "True" else f"{self.text}   where {self.where}"


def number(term: Term) -> int | float | None:
    """The number that all elements of a constant are, None if it is none."""
    elements = term.attributes["value"] if term.kind == "constant" else ()
    return elements[0] if isinstance(elements, tuple) and len(set(map(repr, elements))) == 1 else None


_ALLOWED: dict[str, Any] = {
    "__builtins__": {"len": len, "range": range, "tuple": tuple, "sorted": sorted, "all": all},
    "number": number,
    "brief": lambda value: float(f"{value:.12g}"),
    "inf": math.inf,
}


def evaluated(code: CodeType, found: Binding) -> Any:
    """The value of an expression over names, of which conditions and attributes consist."""
    return eval(code, {**_ALLOWED, **found})


class Builder:
    """Makes the terms of right sides, in one store and with the dimensions of one graph."""

    def __init__(self, terms: Terms, dims: Mapping[str, Dim]) -> None:
        self._terms = terms
        self._dims = dims

    def build(self, pattern: Pattern, found: Binding, outermost: bool = True) -> Term:
        """The pattern with terms put in for its names; raises IrError if it is not well typed.

        Where a result's type is declared and not inferred, it is that of the left side.
        """
        if isinstance(pattern, Name):
            return found[pattern.name]
        operands: list[Term] = []
        for operand in pattern.operands:
            starred = isinstance(operand, Name) and operand.starred
            operands += found[operand.name] if starred else [self.build(operand, found, outermost=False)]
        attributes: dict[str, AttributeValue] = dict(found[pattern.rest]) if pattern.rest else {}
        for name, value in pattern.attributes:
            attributes[name] = _attribute_of(value, found)
        if pattern.kind not in FUNCTIONS and BY_NAME[pattern.kind].rule is None:
            declared = found[pattern.alias] if pattern.alias else found["result"] if outermost else None
            assert declared is not None, f"{pattern.kind} inside a right side has no type"
            return self._terms.apply(pattern.kind, operands, attributes, declared.type)
        return self.operation(pattern.kind, operands, attributes, pattern.index)

    def operation(
        self, kind: str, operands: Sequence[Term], attributes: Mapping[str, AttributeValue], index: int = 0
    ) -> Term:
        """An operation on terms, its type inferred; raises IrError if it is not well typed."""
        types = result_types(kind, operands, attributes, self._dims)
        return self._terms.apply(kind, operands, attributes, types[index], index)

    def declared(
        self, kind: str, operands: Sequence[Term], attributes: Mapping[str, AttributeValue], tensor_type: TensorType
    ) -> Term:
        """An operation on terms whose type is declared."""
        return self._terms.apply(kind, operands, attributes, tensor_type)


def _attribute_of(value: AttributeValue | Name | CodeType, found: Binding) -> AttributeValue:
    if isinstance(value, Name):
        return found[value.name]
    return evaluated(value, found) if isinstance(value, CodeType) else value


def result_types(
    kind: str, operands: Sequence[Term], attributes: Mapping[str, AttributeValue], dims: Mapping[str, Dim]
) -> tuple[TensorType, ...]:
    """Types of an operation's results, or of one of the functions that only terms have."""
    types = [operand.type for operand in operands]
    if kind in FUNCTIONS:
        return (FUNCTIONS[kind](types, attributes),)
    rule = BY_NAME[kind].rule
    assert rule is not None, f"the type of {kind} is declared, not inferred: no equation can make one"
    return rule(types[1:] if kind == "attention" else types, attributes, dims)


def _paired(types: Sequence[TensorType], attributes: Mapping[str, Any]) -> TensorType:
    return replace(types[0], layout=paired(attributes["head_dim"]))


def _row(types: Sequence[TensorType], _attributes: Mapping[str, Any]) -> TensorType:
    return replace(types[0], layout=ROW)


def _cache(_types: Sequence[TensorType], _attributes: Mapping[str, Any]) -> TensorType:
    return CACHE


def _first(types: Sequence[TensorType], _attributes: Mapping[str, Any]) -> TensorType:
    return types[0]


def _attended(types: Sequence[TensorType], attributes: Mapping[str, Any]) -> TensorType:
    rule = BY_NAME["matmul"].rule
    assert rule is not None
    return rule(types, attributes, {})[0]


FUNCTIONS: dict[str, Callable[[Sequence[TensorType], Mapping[str, Any]], TensorType]] = {
    "pair_rows": _paired,
    "pair_columns": _paired,
    "unpair_columns": _row,
    "pair_cache": _cache,
    "unpair_cache": _cache,
    "append": _cache,
    "scaled": _first,
    "masked": _first,
    "attend": _attended,
}
"""Functions that no operation computes by itself: orders of rows, of columns and of cached keys, and the cache; scores
times a factor, scores kept where a condition holds, and values weighted by the softmax of scores."""


def _match(pattern: Pattern, term: Term, found: Binding) -> bool:
    if isinstance(pattern, Name):
        return _bind(found, pattern.name, term)
    if (term.kind, term.index) != (pattern.kind, pattern.index):
        return False
    if pattern.alias is not None and not _bind(found, pattern.alias, term):
        return False
    return _match_operands(pattern.operands, term.operands, found) and _match_attributes(pattern, term, found)


def _match_operands(patterns: Sequence[Pattern], operands: Sequence[Term], found: Binding) -> bool:
    last = patterns[-1] if patterns else None
    if isinstance(last, Name) and last.starred:
        fixed = len(patterns) - 1
        if len(operands) < fixed or not _bind(found, last.name, tuple(operands[fixed:])):
            return False
        patterns, operands = patterns[:fixed], operands[:fixed]
    if len(patterns) != len(operands):
        return False
    return all(_match(pattern, operand, found) for pattern, operand in zip(patterns, operands, strict=True))


def _match_attributes(pattern: Apply, term: Term, found: Binding) -> bool:
    written = {name for name, _ in pattern.attributes}
    others = {name: value for name, value in term.attributes.items() if name not in written}
    if len(others) + len(written) != len(term.attributes) or (others and pattern.rest is None):
        return False
    for name, value in pattern.attributes:
        given = term.attributes[name]
        if not (_bind(found, value.name, given) if isinstance(value, Name) else _same(value, given)):
            return False
    return pattern.rest is None or _bind(found, pattern.rest, others)


def _bind(found: Binding, name: str, value: Any) -> bool:
    return _same(found.setdefault(name, value), value)


def _same(a: Any, b: Any) -> bool:
    """Terms are themselves; attributes are the same if their text is (terms.Terms.symbol)."""
    return a is b or (not isinstance(a, Term) and repr(a) == repr(b))


def _names(pattern: Apply) -> set[Pattern]:
    """Its operands, none of them nested, in no order."""
    return set(pattern.operands)


def _numbers(term: Term) -> list[int]:
    return [operand.number for operand in term.operands]


def _orders(pattern: Pattern) -> Iterator[Any]:
    """The pattern with the operands of operations that commute in every order."""
    if isinstance(pattern, Name):
        yield pattern
        return
    for operands in itertools.product(*map(_orders, pattern.operands)):
        yield replace(pattern, operands=operands)
        if pattern.kind in COMMUTE and operands[0] != operands[1]:
            yield replace(pattern, operands=operands[::-1])


def parse_pattern(text: str) -> Pattern:
    """The pattern a text writes."""
    return _pattern(ast.parse(text, mode="eval").body)


def _sides(text: str) -> tuple[Pattern, Pattern]:
    comparison = ast.parse(text, mode="eval").body
    assert isinstance(comparison, ast.Compare) and isinstance(comparison.ops[0], ast.Eq), text
    return _pattern(comparison.left), _pattern(comparison.comparators[0])


def _pattern(node: ast.expr, index: int = 0, alias: str | None = None) -> Pattern:
    if isinstance(node, ast.NamedExpr):
        return _pattern(node.value, index, node.target.id)
    if isinstance(node, ast.Name):
        return Name(node.id)
    if isinstance(node, ast.Starred):
        assert isinstance(node.value, ast.Name), ast.unparse(node)
        return Name(node.value.id, starred=True)
    if isinstance(node, ast.Subscript):
        return _pattern(node.value, ast.literal_eval(node.slice))
    assert isinstance(node, ast.Call), ast.unparse(node)
    rest = [keyword.value for keyword in node.keywords if keyword.arg is None]
    return Apply(
        ast.unparse(node.func).rstrip("_"),
        tuple(map(_pattern, node.args)),
        tuple((keyword.arg, _attribute(keyword.value)) for keyword in node.keywords if keyword.arg is not None),
        ast.unparse(rest[0]) if rest else None,
        index,
        alias,
    )


def _attribute(node: ast.expr) -> AttributeValue | Name | CodeType:
    if isinstance(node, ast.Name):
        return Name(node.id)
    try:
        return ast.literal_eval(node)
    except ValueError:
        return compile(ast.Expression(node), "<attribute>", "eval")
