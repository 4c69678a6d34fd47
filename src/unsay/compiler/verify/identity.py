"""T3: identity tests over the integers mod 65521, at real sizes.

Two expressions that are equal as polynomials are equal at every input; two that are not differ at a random one with a
probability of all but degree / 65521 an element (Schwartz, Zippel). Functions such as exp are hashed, so that equal
arguments are needed for equal values. This is a test and no proof, but at the sizes models have, and what differs
comes with the values that show it.
"""

from __future__ import annotations

import numpy as np

from unsay.compiler.dialect.domains import CONCRETE, FIELD, PRIME, Array
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.evaluation import Meant, evaluate_terms, parts_of
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.scopes import SCOPES
from unsay.compiler.verify.small_scope import sides_at
from unsay.compiler.verify.terms import Term, reachable


def check_axiom(axiom: Axiom) -> Result:
    """The axiom at the sizes of a real model."""
    for scope in SCOPES[axiom.name]:
        sides = sides_at(axiom, scope, scope.real_sizes())
        found = find_difference(sides.left, sides.right)
        if found is not None:
            return Result(Status.REFUTED, f"{axiom.text}\n  at {sides.sizes}: {found}")
    return Result(Status.PROVED, f"{len(SCOPES[axiom.name])} sizes, mod {PRIME}")


def find_difference(left: Term, right: Term, seed: int = 0) -> str | None:
    """An element in which two terms differ at random inputs, and both values; None if there is none."""
    random = np.random.default_rng(seed)
    leaves = {term.number: random_leaf(term, random) for term in reachable([left, right]) if not term.operands}
    with np.errstate(all="ignore"):
        a, b = (_flat(value) for value in evaluate_terms([left, right], leaves, FIELD))
    if a.shape != b.shape:
        return f"shapes {a.shape} and {b.shape}"
    places = np.argwhere(a != b)
    if not len(places):
        return None
    place = tuple(places[0])
    return f"element {list(map(int, place))} is {int(a[place])} and {int(b[place])} mod {PRIME}, inputs of seed {seed}"


def random_leaf(term: Term, random: np.random.Generator) -> Meant:
    """Random values of a term's type: residues, bools, small indices; a constant is what it is."""
    if term.kind == "constant":
        return evaluate_terms([term], {}, FIELD)[0]
    if term.kind != "cache":
        shape = tuple(int(str(extent)) for extent in term.type.dims)
        concrete = CONCRETE.get(term.type.dtype)
        return residues(shape, random) if concrete is None else random.integers(0, 2, shape).astype(concrete)
    shape = (int(str(term.attributes["past"])), int(str(term.attributes["columns"])))
    return residues(shape, random), residues(shape, random)


def residues(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Random elements of the field."""
    return random.integers(0, PRIME, shape).astype(np.uint64)


def _flat(value: Meant) -> Array:
    parts = parts_of(value)
    return parts[0] if len(parts) == 1 else np.concatenate([part.reshape(-1) for part in parts])
