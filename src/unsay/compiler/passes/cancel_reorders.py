"""Removes orders and places that nothing sees.

    reorder(reorder(x) {a}) {b}    ->  reorder(x) {b}          reorder(x) {l}   ->  x      x in layout l
    transfer(transfer(x) {a}) {b}  ->  transfer(x) {b}         transfer(x) {d}  ->  x      x on device d
    transfer(weight() {t}) {d}     ->  weight() {t} on d       also a constant: it is loaded to where it is read
    reorder(f(reorder(x) {l}, g, c)) {m}  ->  f(x, g', c)

In the last one f works element by element, x is in m, c is a scalar, and g' is g by the same rule; other readers of
f(..) read reorder(f(x, g', c)) {l}. A layout and a device are how and where a value lies: all is equal in every bit.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.elementwise import ELEMENTWISE
from unsay.compiler.passes.match import from_kind

_ATTRIBUTE = {"reorder": "layout", "transfer": "device"}


def cancel_reorders(graph: Graph) -> int:
    """Number of rewrites, until none applies."""
    total = 0
    while count := sum(_rewrite(graph, operation) for operation in list(graph.operations)):
        total += count
    return total


def _rewrite(graph: Graph, operation: Operation) -> bool:
    if operation.kind not in _ATTRIBUTE or not operation.result.uses:
        return False
    return _skip_inner(graph, operation) or _load_there(graph, operation) or _sink(graph, operation)


def _skip_inner(graph: Graph, operation: Operation) -> bool:
    """The operation reads what the one of its kind before it read, or goes if that is what it gives."""
    inner = from_kind(operation.operands[0], operation.kind)
    x = inner.operands[0] if inner is not None else operation.operands[0]
    if x.type == operation.result.type:
        graph.replace(operation.result, x)
        erase_dead(graph, operation)
        return True
    if inner is None:
        return False
    name, attributes = operation.result.name, operation.attributes
    _put(graph, operation, emit(graph, operation.kind, x, name=name, before=operation, **attributes))
    return True


def _load_there(graph: Graph, operation: Operation) -> bool:
    source = operation.operands[0].producer
    if operation.kind != "transfer" or source.kind not in ("weight", "constant"):
        return False
    result = operation.result
    loaded = graph.add(source.kind, (), source.attributes, [(result.name, result.type)], before=source)
    _put(graph, operation, loaded.result)
    return True


def _sink(graph: Graph, operation: Operation) -> bool:
    """Compute in the layout that is wanted, where that is the layout everything came from."""
    made, layout = operation.operands[0], operation.result.type.layout
    if operation.kind != "reorder" or made.producer.kind == "reorder" or not _comes_from(made, layout):
        return False
    _compute_in(graph, made, layout)
    return True


def _comes_from(value: Value, layout: str) -> bool:
    """Whether the value is a scalar, was reordered from the layout, or works element by element on such values."""
    maker = value.producer
    if value.type.rank == 0:
        return True
    if maker.kind == "reorder":
        return maker.operands[0].type.layout == layout
    return maker.kind in ELEMENTWISE and all(_comes_from(operand, layout) for operand in maker.operands)


def _compute_in(graph: Graph, value: Value, layout: str) -> None:
    """Do the operation that made the value in another layout, and reorder its result back."""
    maker = value.producer
    if value.type.rank == 0 or maker.kind == "reorder":
        return
    for index in range(len(maker.operands)):
        _compute_in(graph, maker.operands[index], layout)
    sources = [x if x.type.rank == 0 else x.producer.operands[0] for x in maker.operands]
    name = f"{value.name}.{layout.replace(':', '')}"
    result = emit(graph, maker.kind, *sources, name=name, before=maker, **maker.attributes)
    back = emit(graph, "reorder", result, name=value.name, before=maker, layout=value.type.layout)
    _put(graph, maker, back)


def _put(graph: Graph, operation: Operation, value: Value) -> None:
    """Put a new value in place of a result; what is read by nothing any more goes."""
    operands = operation.operands
    graph.substitute(operation, (value,))
    erase_dead(graph, *(operand.producer for operand in operands))
