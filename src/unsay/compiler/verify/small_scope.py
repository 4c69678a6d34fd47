"""T2: every axiom at every small size, for all real inputs at once.

Both sides of the axiom are evaluated over Z3 reals (reals.py) by the same rows of dialect/semantics.py that run graphs,
and Z3 decides whether every element of one equals that of the other. Sizes are those of scopes.py; that they are enough
is an argument about the operations, not a proof: none of them treats its tenth row or column otherwise than its second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.equations import Builder
from unsay.compiler.verify.evaluation import Meant, evaluate_terms, parts_of
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.patterns import Pattern, parse_pattern
from unsay.compiler.verify.reals import RealDomain, variables
from unsay.compiler.verify.scopes import SCOPES, Scope
from unsay.compiler.verify.smt import decide, z3
from unsay.compiler.verify.terms import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of an axiom at some sizes."""

    left: Term
    right: Term
    sizes: str


def prove(axiom: Axiom) -> Result:
    """The axiom at every small size of its scopes."""
    count = 0
    for sides in small_sides(axiom):
        result = prove_equal(sides.left, sides.right, rounds=axiom.keeps != "rounded")
        if result.status is not Status.PROVED:
            return Result(result.status, f"{axiom.text}\n  at {sides.sizes}: {result.detail}")
        count += 1
    return Result(Status.PROVED, f"{count} sizes")


def small_sides(axiom: Axiom) -> Iterator[Sides]:
    """Both sides at every small size."""
    for scope in SCOPES[axiom.name]:
        for sizes in scope.small_sizes():
            yield sides_at(axiom, scope, sizes)


def sides_at(axiom: Axiom, scope: Scope, sizes: dict[str, int]) -> Sides:
    """Both sides with terms of these sizes; the left one must be an instance of the axiom, its condition included."""
    terms = Terms()
    builder = Builder(terms, {})
    left = builder.build(_left(axiom, scope), scope.bind(terms, sizes))
    right = axiom.rule.apply(builder, left)
    assert right is not None, f"{axiom.name}: {left} at {sizes} is no instance of {axiom.text}"
    assert left.type == right.type, (axiom.name, left.type, right.type)
    return Sides(left, right, ", ".join(f"{letter} = {size}" for letter, size in sizes.items()))


def _left(axiom: Axiom, scope: Scope) -> Pattern:
    return parse_pattern(scope.left) if scope.left else axiom.equation.left


def prove_equal(left: Term, right: Term, *, rounds: bool = True) -> Result:
    """Whether two terms are equal for all real inputs; `rounds` as in reals.RealDomain."""
    leaves = {term.number: _any(term) for term in reachable([left, right]) if term.kind in ("input", "weight", "cache")}
    domain = RealDomain(rounds=rounds)
    with np.errstate(all="ignore"):
        sides = evaluate_terms([left, right], leaves, domain)
    claims = [_equal(a, b) for a, b in zip(*map(_elements, sides), strict=True)]
    open_claims = [claim for claim in claims if claim is not None]
    return decide(z3.And(open_claims), *domain.facts) if open_claims else Result(Status.PROVED)


def _any(term: Term) -> Meant:
    """Variables for every element of a leaf."""
    name = str(term.attributes.get("name") or term.attributes.get("tensor"))
    if term.kind != "cache":
        return variables(name, _shape(term), term.type.dtype)
    shape = (_integer(term, "past"), _integer(term, "columns"))
    return variables(f"{name}.k", shape), variables(f"{name}.v", shape)


def _equal(a: Any, b: Any) -> Any:
    """What is left to prove of a == b; None if nothing is, which most often their normal forms show."""
    if a is b or a.eq(b):
        return None
    if not z3.is_arith(a):
        return a == b
    difference = z3.simplify(a - b, som=True)
    return None if z3.is_rational_value(difference) and difference.as_fraction() == 0 else a == b


def _elements(value: Meant) -> Sequence[Any]:
    return [_expression(item) for part in parts_of(value) for item in np.asarray(part, object).reshape(-1)]


def _expression(item: Any) -> Any:
    if type(item) in (bool, np.bool_):
        return z3.BoolVal(bool(item))
    if isinstance(item, float) and math.isinf(item):
        return z3.Real(str(item))
    return z3.RealVal(item) if isinstance(item, int | float) else item


def _shape(term: Term) -> tuple[int, ...]:
    assert all(isinstance(extent, int) for extent in term.type.dims), term
    return term.type.dims  # pyright: ignore[reportReturnType]


def _integer(term: Term, name: str) -> int:
    value = term.attributes[name]
    assert isinstance(value, int), term
    return value
