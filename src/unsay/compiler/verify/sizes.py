"""Terms of a graph at one size of a dimension: what the graph computes where that is its size.

A pass that fixes a size (specialise_batch) keeps what the graph computes at that size alone. Which size is wanted is
read from the remarks of the graph before the pass, not from what the pass made of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from unsay.compiler.ir.core import AttributeValue, Graph
from unsay.compiler.ir.dims import Dim, Extent, Formula, formula, number, of
from unsay.compiler.verify.terms import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Wanted:
    """The dimensions of a graph, and the one that is to be fixed, if any, with its size."""

    dims: Mapping[str, Dim] = field(default_factory=dict[str, Dim])
    name: str = ""
    size: int = 0


def wanted_size(graph: Graph) -> Wanted:
    """What the remarks of a graph ask for."""
    name, size = graph.sema.get("dynamic_batch"), graph.sema.get("batch")
    if isinstance(name, str) and isinstance(size, int):
        return Wanted(dict(graph.dims), name, size)
    return Wanted(dict(graph.dims))


def at_size(terms: Terms, roots: Sequence[Term], wanted: Wanted) -> dict[int, Term]:
    """The same terms at the size wanted, by the numbers of those given and all they are made of."""
    extents = {name: _fixed(dim, wanted) for name, dim in wanted.dims.items()}
    made: dict[int, Term] = {}
    for term in reachable(roots):
        operands = [made[operand.number] for operand in term.operands]
        kind, attributes = _size_as_constant(term, extents)
        dims = tuple(extents[extent.name] if isinstance(extent, Dim) else extent for extent in term.type.dims)
        made[term.number] = terms.apply(kind, operands, attributes, replace(term.type, dims=dims), term.index)
    return made


def _size_as_constant(term: Term, extents: Mapping[str, Extent]) -> tuple[str, Mapping[str, AttributeValue]]:
    extent = extents[str(term.attributes["dim"])] if term.kind == "size" else None
    return ("constant", {"value": (extent,)}) if isinstance(extent, int) else (term.kind, term.attributes)


def _fixed(dim: Dim, wanted: Wanted) -> Extent:
    """The size itself, or the dimension with the size in its formula."""
    if dim.name == wanted.name:
        return wanted.size
    if dim.formula is None:
        return dim
    fixed = _substituted(dim.formula, wanted)
    return replace(dim, formula=fixed) if fixed.constant is None else fixed.constant


def _substituted(given: Formula, wanted: Wanted) -> Formula:
    total = formula([])
    for monomial, coefficient in given.terms:
        term = number(coefficient)
        for dim in monomial:
            term *= of(_fixed(dim, wanted))
        total += term
    return total
