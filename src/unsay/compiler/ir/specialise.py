"""A graph at fixed sizes of some or all of its dimensions.

graph g(B: 1..8, T: 1..512, N: 1..4096 = B*T) where T % 16 == 0   at {"B": 4}
    ->   graph g(T: 1..512, N: 1..4096 = 4*T) where T % 16 == 0   and every type with 4 in place of B
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.dims import Constraint, Dim, Extent, Formula
from unsay.compiler.ir.types import TensorType
from unsay.errors import RequestError

_Extents = dict[str, Extent]


def at_sizes(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """A copy with these dimensions fixed; raises RequestError where a size breaks a range or a constraint."""
    unknown = sizes.keys() - graph.dims.keys()
    if unknown:
        raise RequestError(f"{graph.name} has no dimension {min(unknown)}, it has {', '.join(graph.dims) or 'none'}")
    extents: _Extents = {}
    for dim in graph.dims.values():
        extents[dim.name] = _fixed(dim, sizes.get(dim.name), extents)
    constraints = [_constraint(constraint, extents) for constraint in graph.constraints]
    dims = [extent for extent in extents.values() if isinstance(extent, Dim)]
    copy = Graph(graph.name, dims, [constraint for constraint in constraints if constraint], graph.sema)
    made: dict[Value, Value] = {}
    for operation in graph.operations:
        twin = _twin(copy, operation, made, extents)
        made.update(zip(operation.results, twin.results, strict=True))
    return copy


def _fixed(dim: Dim, size: int | None, extents: _Extents) -> Extent:
    """The dimension or its size, after those it is computed from."""
    formula = None if dim.formula is None else _formula(dim.formula, extents)
    computed = None if formula is None else formula.constant
    if computed is not None and size not in (None, computed):
        raise RequestError(f"{dim.name} = {dim.formula} is {computed}, not {size}")
    known = computed if size is None else size
    if known is None:
        return replace(dim, formula=formula)
    if not dim.low <= known <= dim.high:
        raise RequestError(f"{dim.name} must be in {dim.low}..{dim.high}, got {known}")
    return known


def _formula(formula: Formula, extents: _Extents) -> Formula:
    total = formulas.number(0)
    for monomial, coefficient in formula.terms:
        term = formulas.number(coefficient)
        for dim in monomial:
            term *= formulas.of(extents[dim.name])
        total += term
    return total


def _constraint(constraint: Constraint, extents: _Extents) -> Constraint | None:
    """The constraint on what is still free; None if it holds, RequestError if it cannot."""
    left, right = _formula(constraint.left, extents), _formula(constraint.right, extents)
    reduced = replace(constraint, left=left, right=right)
    if left.constant is None or right.constant is None:
        return reduced
    if not reduced.holds({}):
        sizes = {name: extent for name, extent in extents.items() if isinstance(extent, int)}
        raise RequestError(f"must hold: {constraint}; got {sizes}")
    return None


def _twin(copy: Graph, operation: Operation, made: Mapping[Value, Value], extents: _Extents) -> Operation:
    results = [(value.name, _type(value.type, extents)) for value in operation.results]
    kind, attributes = operation.kind, operation.attributes
    if kind == "size" and isinstance(size := extents[operation.string("dim")], int):
        kind, attributes = "constant", _constant(attributes, size)
    operands = [made[operand] for operand in operation.operands]
    return copy.add(kind, operands, attributes, results, location=operation.location)


def _constant(attributes: Mapping[str, AttributeValue], size: int) -> dict[str, AttributeValue]:
    return {"value": (size,), **{name: value for name, value in attributes.items() if name != "dim"}}


def _type(tensor_type: TensorType, extents: _Extents) -> TensorType:
    dims = tuple(extents[extent.name] if isinstance(extent, Dim) else extent for extent in tensor_type.dims)
    return replace(tensor_type, dims=dims)
