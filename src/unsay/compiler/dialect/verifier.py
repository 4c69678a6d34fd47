"""Checks a graph against the table of operations and the invariants of ir/core.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from unsay.compiler.dialect.ops import BY_NAME, Op
from unsay.compiler.dialect.sema import check_sema
from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.tokens import fits_i64
from unsay.compiler.ir.types import TensorType
from unsay.errors import IrError

REMARK = "sema."
"""An attribute with this prefix is a remark of a pass: any operation may carry it, and none changes its meaning."""

_Contents: TypeAlias = tuple[str, list[TensorType], Mapping[str, AttributeValue], list[TensorType]]
Checked: TypeAlias = dict[Operation, _Contents]
"""Operations found right, each with what it was then: all that the table speaks of."""


def verify(graph: Graph, checked: Checked | None = None) -> None:
    """Raise IrError for the first broken rule, with the place in the text the operation came from.

    Operations that are as they were in `checked` are not checked against the table again; those that pass are added.
    """
    check_sema(graph)
    checked = {} if checked is None else checked
    defined: set[Value] = set()
    for operation in graph.operations:
        _check_operands(operation, defined)
        contents = _contents(operation)
        if checked.get(operation) != contents:
            _check_located(operation, graph)
            checked[operation] = contents
        defined.update(operation.results)
    _check_names(graph)
    _check_uses(graph)


def _contents(operation: Operation) -> _Contents:
    operands = [value.type for value in operation.operands]
    return operation.kind, operands, dict(operation.attributes), [value.type for value in operation.results]


def _check_operands(operation: Operation, defined: set[Value]) -> None:
    for operand in operation.operands:
        if operand not in defined:
            raise IrError(f"{operation.kind}: %{operand.name} is not defined before", *operation.location)


def _check_located(operation: Operation, graph: Graph) -> None:
    try:
        _check_operation(operation, graph)
    except IrError as error:
        raise IrError(f"{operation.kind}: {error}", *operation.location) from error


def _check_operation(operation: Operation, graph: Graph) -> None:
    op = BY_NAME.get(operation.kind)
    if op is None:
        raise IrError(f"no such operation, known are {', '.join(BY_NAME)}")
    count = len(operation.operands)
    if not op.min_operands <= count <= op.max_operands:
        raise IrError(f"takes ({', '.join(op.operands)}), got {count} operands")
    _check_attributes(operation, op)
    operands = [operand.type for operand in operation.operands]
    types = tuple(value.type for value in operation.results)
    if op.rule is None:
        if len(types) != len(op.results):
            raise IrError(f"has {len(op.results)} results, got {len(types)}")
        if op.check is not None:
            op.check(operands, operation.attributes, types)
        return
    inferred = op.rule(operands, operation.attributes, graph.dims)
    if types != inferred:
        raise IrError(f"results are {', '.join(map(str, inferred))}, not {', '.join(map(str, types))}")


def _check_attributes(operation: Operation, op: Op) -> None:
    wanted = {attribute.name for attribute in op.attributes}
    given = {name for name in operation.attributes if not name.startswith(REMARK)}
    if given != wanted:
        raise IrError(f"attributes are {sorted(wanted)}, got {sorted(given)}")
    for attribute in op.attributes:
        value = operation.attributes[attribute.name]
        if not attribute.fits(value):
            raise IrError(f"{attribute.name} must be of {attribute.kind_name}, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value) and not attribute.infinite:
            raise IrError(f"{attribute.name} must be finite, got {value!r}")
        if isinstance(value, int) and not fits_i64(value):
            raise IrError(f"{attribute.name} must be of 64 bits, got {value}")
        if attribute.choices and value not in attribute.choices:
            raise IrError(f"{attribute.name} must be one of {list(attribute.choices)}, got {value!r}")
    for invariant in op.attribute_invariants:
        if not invariant.holds(operation.attributes):
            raise IrError(f"must hold: {invariant.text}; got {operation.attributes}")


def _check_names(graph: Graph) -> None:
    names = [value.name for operation in graph.operations for value in operation.results]
    assert len(names) == len(set(names)), f"names of values of {graph.name} are not unique"


def _check_uses(graph: Graph) -> None:
    recorded = sum(len(value.uses) for operation in graph.operations for value in operation.results)
    assert recorded == sum(len(operation.operands) for operation in graph.operations), graph.name
    for operation in graph.operations:
        for operand in operation.operands:
            assert operand.uses.count(operation) == operation.operands.count(operand), (operand, operation)
