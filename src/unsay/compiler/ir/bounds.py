"""Upper bounds of sizes, from the ranges of dimensions and the constraints of a graph.

graph g(B: 1..64, T: 1..8192) where B*T <= 8192      most(B x T x 576) = 8192 * 576, not 64 * 8192 * 576
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.dims import Constraint, Dim, Extent, Formula, Monomial


def most(extents: Sequence[Extent], constraints: Sequence[Constraint]) -> int:
    """A number that the product of extents never exceeds, at sizes that keep the ranges and the constraints."""
    one_by_one = prod(_most_extent(extent, constraints) for extent in extents)
    return min(one_by_one, _most_formula(formulas.free(extents), constraints))


def _most_extent(extent: Extent, constraints: Sequence[Constraint]) -> int:
    if isinstance(extent, int):
        return extent
    return min(extent.high, _most_formula(formulas.of(extent).free(), constraints))


def _most_formula(formula: Formula, constraints: Sequence[Constraint]) -> int:
    """The sum of the most of each term, or what a constraint says of the whole."""
    terms = (_most_term(monomial, factor, constraints) for monomial, factor in formula.terms)
    said = [limit for left, limit in map(_limit, constraints) if left == formula]
    return max(0, min([sum(terms), *said]))


def _most_term(monomial: Monomial, factor: int, constraints: Sequence[Constraint]) -> int:
    return factor * (prod(dim.low for dim in monomial) if factor < 0 else _most_product(monomial, constraints))


def _most_product(monomial: Monomial, constraints: Sequence[Constraint]) -> int:
    """The product of the highest sizes, or less where a constraint bounds some of the factors together."""
    best = prod(dim.high for dim in monomial)
    for constraint in constraints:
        left, limit = _limit(constraint)
        if left is None or len(left.terms) != 1:
            continue
        factors, coefficient = left.terms[0]
        rest = Counter(monomial)
        rest.subtract(Counter(factors))
        if factors and coefficient > 0 and min(rest.values()) >= 0:
            best = min(best, limit // coefficient * _most_product(_dims(rest), constraints))
    return best


def _dims(counts: Counter[Dim]) -> Monomial:
    return tuple(counts.elements())


def _limit(constraint: Constraint) -> tuple[Formula | None, int]:
    """(formula, the most it may be) if the constraint is an upper bound, (None, 0) for another."""
    limit = constraint.right.free().constant
    if constraint.modulus is not None or limit is None or constraint.relation not in ("<=", "<", "=="):
        return None, 0
    return constraint.left.free(), limit - (constraint.relation == "<")
