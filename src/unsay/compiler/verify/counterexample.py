"""Values that show two terms to differ: both sides at small sizes and random inputs mod 65521 (identity.py).

What both have in common is given random values and not computed, so that only the rewrite at fault is evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from unsay.compiler.dialect.domains import FIELD, Array
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.dims import Constraint, Dim
from unsay.compiler.verify.evaluation import SPECIAL, Meant, evaluate_terms, parts_of
from unsay.compiler.verify.identity import random_leaf, residues
from unsay.compiler.verify.terms import CACHE, Term, Terms, reachable

_LARGEST = 64


def differing_values(before: Term, after: Term, dims: Mapping[str, Dim], constraints: Sequence[Constraint]) -> str:
    """An element in which the terms differ; or that none was found, so that the axioms may just say too little."""
    sizes = next(_sizes(dims, constraints), None)
    if sizes is None:
        return f"no sizes up to {_LARGEST} keep the constraints, so no values were tried"
    left, right = _at(sizes, before, after)
    if left.type.dims != right.type.dims:
        return f"shapes differ: {left.type} and {right.type}"
    found = _differing_element(left, right)
    if found is None:
        return "no values found that show it: it may be right, but no axiom of the pass says so"
    named = {extent.name for term in reachable([before, after]) for extent in term.type.dims if isinstance(extent, Dim)}
    at = ", ".join(f"{name} = {size}" for name, size in sizes.items() if name in named)
    return f"at {at}, {found}" if at else found


def _sizes(dims: Mapping[str, Dim], constraints: Sequence[Constraint]) -> Iterator[dict[str, int]]:
    """Sizes that keep ranges, formulas and constraints, smaller ones first."""
    free = [dim for dim in dims.values() if dim.formula is None]
    ranges = [range(max(dim.low, min(2, dim.high)), min(dim.high, max(dim.low, _LARGEST)) + 1) for dim in free]
    for chosen in itertools.product(*ranges):
        sizes = dict(zip([dim.name for dim in free], chosen, strict=True))
        for dim in dims.values():
            if dim.formula is not None:
                sizes[dim.name] = dim.formula.value(sizes)
        if all(constraint.holds(sizes) for constraint in constraints):
            yield sizes


def _at(sizes: Mapping[str, int], *roots: Term) -> list[Term]:
    """The terms at fixed sizes, in a store of their own."""
    terms, made = Terms(), dict[int, Term]()
    for term in reachable(roots):
        operands = [made[operand.number] for operand in term.operands]
        dims = tuple(sizes[extent.name] if isinstance(extent, Dim) else extent for extent in term.type.dims)
        fixed = replace(term.type, dims=dims)
        made[term.number] = terms.apply(term.kind, operands, term.attributes, fixed, term.index)
    return [made[root.number] for root in roots]


def _differing_element(left: Term, right: Term) -> str | None:
    random = np.random.default_rng(0)
    mine, theirs = ({term.number: term for term in reachable([root])} for root in (left, right))
    columns = _key_columns([*mine.values(), *theirs.values()])
    leaves: dict[int, Meant] = {}
    for number, term in {**mine, **theirs}.items():
        shared = number in mine and number in theirs
        if term.kind != "constant" and (shared or not _has_meaning(term)):
            leaves[number] = _any_cache(columns, random) if term.type == CACHE else random_leaf(term, random)
    with np.errstate(all="ignore"):
        values = evaluate_terms([left, right], leaves, FIELD)
    a, b = (np.concatenate([part.reshape(-1) for part in parts_of(value)]) for value in values)
    return _first(a, b, left.type.dims) if a.shape == b.shape else f"{a.size} and {b.size} elements"


def _first(a: Array, b: Array, dims: Sequence[object]) -> str | None:
    places = np.flatnonzero(a != b)
    if not len(places):
        return None
    place = int(places[0])
    shape = [int(str(extent)) for extent in dims]
    index = list(map(int, np.unravel_index(place, shape))) if int(np.prod(shape)) == len(a) else [place]
    return f"element {index} is {int(a[place])} before and {int(b[place])} after (random inputs mod 65521)"


def _has_meaning(term: Term) -> bool:
    """Whether a term can be computed; what is torn or overwritten is anything."""
    return bool(term.operands) and (term.kind in SEMANTICS or term.kind in SPECIAL)


def _key_columns(terms: Sequence[Term]) -> int:
    widths = [term.operands[1].type.dims[-1] for term in terms if term.kind == "append"]
    widths += [term.operands[2].type.dims[-1] for term in terms if term.kind == "attention"]
    return int(str(widths[0])) if widths else 1


def _any_cache(columns: int, random: np.random.Generator) -> Meant:
    return residues((1, columns), random), residues((1, columns), random)
