"""Patterns of terms, written as Python expressions: how both sides of an equation are said (equations.py).

Positional names are terms, `*name` any number of them at the end; keywords are attributes: a name stands for any
value, a constant for itself, `**name` for all attributes not written; [i] is the i-th result. A name written twice
stands for the same thing, `(r := reshape(x))` names a part, `not_` is `not`.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, TypeAlias

from unsay.compiler.ir.core import AttributeValue
from unsay.compiler.verify.terms import Term

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


def match_pattern(pattern: Pattern, term: Term, found: Binding) -> bool:
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
    return all(match_pattern(pattern, operand, found) for pattern, operand in zip(patterns, operands, strict=True))


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


def orders(pattern: Pattern) -> Iterator[Any]:
    """The pattern with the operands of operations that commute in every order."""
    if isinstance(pattern, Name):
        yield pattern
        return
    for operands in itertools.product(*map(orders, pattern.operands)):
        yield replace(pattern, operands=operands)
        if pattern.kind in COMMUTE and operands[0] != operands[1]:
            yield replace(pattern, operands=operands[::-1])


def parse_pattern(text: str) -> Pattern:
    """The pattern a text writes."""
    return _pattern(ast.parse(text, mode="eval").body)


def parse_equation(text: str) -> tuple[Pattern, Pattern]:
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
