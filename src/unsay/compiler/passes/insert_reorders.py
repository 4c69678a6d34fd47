"""Brings every operand to the device of its operation, in the layout of that device, and the result back.

    y = op(x, ..) {sema.device = "gpu"}                      x and y on the cpu
        ->   y = transfer(op(transfer(x) {gpu}, ..)) {cpu}
    y = conv2d(x, ..)                                        x in nchw, on a device that takes nhwc
        ->   y = reorder(conv2d(reorder(x) {nhwc}, ..)) {nchw}

Also pools, as dialect/devices.py says. A layout is how a value lies in memory, so both are equal in every bit. What is
brought and taken back needlessly between two operations of one device is for cancel_reorders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from unsay.compiler.dialect.devices import PICTURE_LAYOUTS, PICTURE_OPS, takes
from unsay.compiler.dialect.ops import BY_NAME, emit
from unsay.compiler.dialect.sema import DEVICE
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import TensorType

_Brought: TypeAlias = dict[tuple[Value, str, str], Value]
"""Values by where they came from, their device and their layout: two readers of one value share what was brought."""


def insert_reorders(graph: Graph) -> int:
    """Number of operations whose operands were moved."""
    brought: _Brought = {}
    return sum(_place(graph, operation, brought) for operation in list(graph.operations))


def _place(graph: Graph, operation: Operation, brought: _Brought) -> bool:
    if operation.kind == "transfer" or not operation.results:
        return False
    device = str(operation.attributes.get(DEVICE, operation.results[0].type.device))
    operands = [
        _bring(graph, operand, device, _layout(operation, index, device), operation, brought)
        for index, operand in enumerate(operation.operands)
    ]
    if tuple(operands) == operation.operands:
        return False
    moved = graph.add(operation.kind, operands, operation.attributes, _results(graph, operation, operands, device),
                      before=operation, location=operation.location)  # fmt: skip
    back = [
        _bring(graph, value, old.type.device, old.type.layout, operation, brought)
        for old, value in zip(operation.results, moved.results, strict=True)
    ]
    graph.substitute(operation, back)
    return True


def _layout(operation: Operation, index: int, device: str) -> str:
    """The layout an operand is wanted in."""
    given = operation.operands[index].type
    slides = index == 0 and operation.kind in PICTURE_OPS
    return PICTURE_LAYOUTS[device][0] if slides and not takes(device, given) else given.layout


def _bring(graph: Graph, value: Value, device: str, layout: str, before: Operation, brought: _Brought) -> Value:
    """The value on a device, in a layout: what goes to a device is reordered there, what leaves it before it leaves."""
    key = (value, device, layout)
    if key not in brought:
        leaves = device == "cpu"
        moved = _reordered(graph, value, layout, before) if leaves else value
        if moved.type.device != device:
            moved = emit(graph, "transfer", moved, name=f"{value.name}.{device}", before=before, device=device)
        brought[key] = moved if leaves else _reordered(graph, moved, layout, before)
    return brought[key]


def _reordered(graph: Graph, value: Value, layout: str, before: Operation) -> Value:
    if value.type.layout == layout:
        return value
    name = f"{value.name}.{layout.replace(':', '')}"
    return emit(graph, "reorder", value, name=name, before=before, layout=layout)


def _results(graph: Graph, operation: Operation, operands: list[Value], device: str) -> list[tuple[str, TensorType]]:
    """Names and types of the results over other operands; types that are declared differ in their device alone."""
    rule = BY_NAME[operation.kind].rule
    if rule is None:
        types = tuple(replace(value.type, device=device) for value in operation.results)
    else:
        types = rule([operand.type for operand in operands], operation.attributes, graph.dims)
    return [(f"{old.name}.{device}", new) for old, new in zip(operation.results, types, strict=True)]
