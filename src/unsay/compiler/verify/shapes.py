"""T0: sizes fit together at every size a graph may be run at, in integer arithmetic.

Derived anew from what each operation does, not from its shape rule (dialect/shapes.py): a row of relations.py says
what must hold between the extents of operands and results, and Z3 whether the ranges, formulas and constraints of the
graph's dimensions imply it. Products of dimensions are compared as polynomials (ir/dims.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.ir.dims import RELATIONS as COMPARISONS
from unsay.compiler.ir.dims import Constraint, Formula
from unsay.compiler.verify.obligation import Obligation, Result, Status
from unsay.compiler.verify.relations import RELATIONS, size_of
from unsay.compiler.verify.smt import Term, decide, z3


def obligations(graph: Graph) -> list[Obligation]:
    """What is to be shown of the sizes of a graph."""
    count = len(graph.operations)
    return [
        Obligation("sizes there are", "T0", "LIA", partial(prove_possible, graph)),
        Obligation(f"sizes fit in {count} operations", "T0", "LIA", partial(prove_sizes, graph)),
    ]


def prove_possible(graph: Graph) -> Result:
    """Some sizes keep all ranges and constraints, so that what is implied by them says something."""
    result = decide(z3.Not(z3.And(True, *_assumptions(graph))))
    if result.status is Status.PROVED:
        return Result(Status.REFUTED, "no sizes keep all ranges and constraints")
    return Result(Status.PROVED, result.detail) if result.status is Status.REFUTED else result


def prove_sizes(graph: Graph) -> Result:
    """The relations of every operation, all sizes at once; those between numbers need no solver."""
    assumptions = _assumptions(graph)
    open_claims: list[tuple[Operation, Term]] = []
    for operation in graph.operations:
        for claim in RELATIONS[operation.kind](operation):
            if claim is False:
                return Result(Status.REFUTED, _told(operation, ""))
            if claim is not True:
                open_claims.append((operation, claim))
    if decide(z3.And(True, *[claim for _, claim in open_claims]), *assumptions).status is Status.PROVED:
        return Result(Status.PROVED, f"{len(open_claims)} claims on dimensions")
    return next(result for result in _one_by_one(open_claims, assumptions) if result.status is not Status.PROVED)


def _one_by_one(claims: Sequence[tuple[Operation, Term]], assumptions: Sequence[Term]) -> Iterator[Result]:
    for operation, claim in claims:
        result = decide(claim, *assumptions)
        yield Result(result.status, _told(operation, result.detail))


def _told(operation: Operation, detail: str) -> str:
    types = ", ".join(str(value.type) for value in (*operation.operands, *operation.results))
    place = ":".join(map(str, operation.location)) if operation.location[0] else ""
    return f"{place} {operation!r} of {types} {f'at {detail}' if detail else ''}".strip()


def _assumptions(graph: Graph) -> list[Term]:
    known: list[Term] = []
    for dim in graph.dims.values():
        known += [dim.low <= size_of(dim), size_of(dim) <= dim.high]
        if dim.formula is not None:
            known.append(size_of(dim) == _value(dim.formula))
    return [*known, *map(_constraint, graph.constraints)]


def _constraint(constraint: Constraint) -> Term:
    left = _value(constraint.left)
    left = left if constraint.modulus is None else left % constraint.modulus
    return COMPARISONS[constraint.relation](left, _value(constraint.right))


def _value(formula: Formula) -> Term:
    terms = [z3.IntVal(factor) * z3.Product([size_of(dim) for dim in dims]) for dims, factor in formula.terms if dims]
    return z3.Sum([*terms, *[z3.IntVal(factor) for dims, factor in formula.terms if not dims]])
