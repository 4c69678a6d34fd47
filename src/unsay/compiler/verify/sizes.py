"""Terms of a graph at one size of a dimension: what the graph computes where that is its size.

A pass that fixes a size (specialise_batch) keeps what the graph computes at that size alone. Which size is wanted is
read from the remarks of the graph before the pass, not from what the pass made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from unsay.compiler.ir.core import AttributeValue, Graph
from unsay.compiler.ir.dims import Constraint, Dim, Extent, Formula, formula, number, of
from unsay.compiler.verify.terms import Term, Terms, reachable


@dataclass(frozen=True, slots=True)
class Wanted:
    """The dimensions of a graph, what holds of them, and the one that is to be fixed, if any, with its size."""

    dims: Mapping[str, Dim]
    constraints: tuple[Constraint, ...]
    name: str = ""
    size: int = 0

    def is_met(self, graph: Graph) -> bool:
        """Whether the dimension that was to be fixed is gone."""
        return bool(self.name) and self.name not in graph.dims


def wanted_size(graph: Graph) -> Wanted:
    """What the remarks of a graph ask for."""
    name, size = graph.sema.get("dynamic_batch"), graph.sema.get("batch")
    if isinstance(name, str) and isinstance(size, int):
        return Wanted(dict(graph.dims), graph.constraints, name, size)
    return Wanted(dict(graph.dims), graph.constraints)


def changed_promise(wanted: Wanted, graph: Graph) -> str:
    """How the graph may be run at other sizes than the one before it, "" if it may not.

    A pass that narrowed a range or added a constraint would be right at fewer sizes than it says.
    """
    dims, constraints = dict(wanted.dims), list(wanted.constraints)
    if wanted.is_met(graph):
        fixed = [_fixed(dim, wanted) for dim in dims.values()]
        dims = {dim.name: dim for dim in fixed if isinstance(dim, Dim)}
        constraints = [_constraint(constraint, wanted) for constraint in constraints]
    if graph.dims != dims:
        return f"dimensions were {_listed(dims.values())}, they are {_listed(graph.dims.values())}"
    added = [constraint for constraint in graph.constraints if constraint not in constraints]
    return f"it holds only where {_listed(added)}" if added else ""


def _listed(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "none"


def _constraint(constraint: Constraint, wanted: Wanted) -> Constraint:
    left, right = _substituted(constraint.left, wanted), _substituted(constraint.right, wanted)
    return replace(constraint, left=left, right=right)


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
