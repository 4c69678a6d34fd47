"""Equations between terms, written as Python expressions, and their instances.

    linear_add(r, x, w, *bias) == add(r, linear(x, w, *bias))
    attention(c, q, k, v, output='q8a', **rest) == quantise(attention(c, q, k, v, output='f32', **rest), output='q8a')
    qkv(x, wq, wk, wv, head_dim=d, ...)[0] == ...

Sides are patterns (patterns.py); on the right an attribute may be any Python expression over the names. Operands of
operations that commute match in either order; that they do commute has axioms of its own.

`where` is a Python expression over the names and `result`, the term on the left; a term has kind, dtype, layout, rank
and type; `number(t)` is the number that all elements of a constant are, or None; `brief(f)` is f in 12 digits.

An instance is the equation with terms put in for its names. The types on the right are inferred by the shape rules,
so an instance that is not well typed is not made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import AttributeValue
from unsay.compiler.ir.types import ROW, Dim, TensorType, paired
from unsay.compiler.verify.patterns import Apply, Binding, Name, Pattern, match_pattern, orders, parse_equation
from unsay.compiler.verify.terms import CACHE, Term, Terms
from unsay.errors import IrError
from unsay.isa.formats import DType


class Equation:
    """`left == right where condition`: both sides compute the same; used from left to right."""

    __slots__ = ("_condition", "_lefts", "left", "permutes", "right", "text", "where")

    def __init__(self, text: str, where: str = "True") -> None:
        self.text = text
        self.where = where
        left, right = parse_equation(text)
        assert isinstance(left, Apply), text
        self.left, self.right = left, right
        self.permutes = (
            isinstance(right, Apply) and left.kind == right.kind and set(left.operands) == set(right.operands)
        )
        self._lefts = [left] if self.permutes else list(orders(left))
        self._condition: CodeType = compile(where, "<where>", "eval")

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the terms it may apply to."""
        return frozenset({self.left.kind})

    def match(self, term: Term) -> Binding | None:
        """What the names stand for if the term is an instance of the left side."""
        for left in self._lefts:
            found: Binding = {}
            if match_pattern(left, term, found):
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
    if not isinstance(elements, tuple) or len(set(map(repr, elements))) != 1:
        return None
    return next(iter(elements))


def _brief(value: float) -> float:
    return float(f"{value:.12g}")


_ALLOWED: dict[str, Any] = {
    "__builtins__": {"len": len, "range": range, "tuple": tuple, "sorted": sorted, "all": all},
    "number": number,
    "brief": _brief,
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
            if isinstance(operand, Name) and operand.starred:
                operands += found[operand.name]
            else:
                operands.append(self.build(operand, found, outermost=False))
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
    if kind == "attention":
        _need_cache(types[0], *types[1:])
        types = types[1:]
    return rule(types, attributes, dims)


def _paired(types: Sequence[TensorType], attributes: Mapping[str, Any]) -> TensorType:
    return replace(types[0], layout=paired(attributes["head_dim"]))


def _row(types: Sequence[TensorType], _attributes: Mapping[str, Any]) -> TensorType:
    return replace(types[0], layout=ROW)


def _cache(types: Sequence[TensorType], _attributes: Mapping[str, Any]) -> TensorType:
    _need_cache(types[0], *types[1:])
    return CACHE


def _need_cache(first: TensorType, *others: TensorType) -> None:
    if first != CACHE or CACHE in others:
        raise IrError(f"the first operand, and no other, must be a cache, got {first}")


def _masked(types: Sequence[TensorType], _attributes: Mapping[str, Any]) -> TensorType:
    scores, condition = types
    if condition.dtype is not DType.BOOL:
        raise IrError(f"a condition must be bool, got {condition}")
    return scores


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
    "masked": _masked,
    "attend": _attended,
}
"""Functions that no operation computes by itself: orders of rows, of columns and of cached keys, and the cache; scores
times a factor, scores kept where a condition holds, and values weighted by the softmax of scores."""


def _numbers(term: Term) -> list[int]:
    return [operand.number for operand in term.operands]
