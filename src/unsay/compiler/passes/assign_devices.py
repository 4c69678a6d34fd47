"""Says of each operation where it is to run, from what the graph says of kinds of operations.

    graph g() sema {device.conv2d = "gpu"}:   conv2d(..) {..}   ->   conv2d(..) {.., sema.device = "gpu"}
    relu(y), y made by an operation for the gpu                 ->   relu(y) {sema.device = "gpu"}
    mul(w, k), w and k weights, read on the gpu                 ->   mul(w, k) {sema.device = "gpu"}

`device.KIND` is of operations of that kind, `device` of all others. An operation that neither names, and that works
element by element or slides over a picture, stays with its operands where all that are computed are for one device.
What is computed from weights alone is computed where it is read. Any other operation is left where it is. Nothing moves
yet: insert_reorders does that. A remark that is there already stays.
"""

from __future__ import annotations

from unsay.compiler.dialect.devices import PICTURE_OPS
from unsay.compiler.dialect.sema import DEVICE
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.elementwise import ELEMENTWISE

_STORED = frozenset({"weight", "constant"})
_STAY = _STORED | {"input", "tokens", "iota", "size", "output", "transfer"}
"""Operations that have no place: they are what others read, or say themselves where they go."""

_FOLLOW = ELEMENTWISE | PICTURE_OPS | {"batch_norm"}


def assign_devices(graph: Graph) -> int:
    """Number of operations given a device."""
    stored = _from_weights_alone(graph)
    assigned = sum(_assign(operation, _named(graph, operation)) for operation in graph.operations)
    assigned += sum(_assign(op, _of_operands(op, stored)) for op in graph.operations if op not in stored)
    return assigned + sum(_assign(op, _of_readers(op)) for op in reversed(graph.operations) if op in stored)


def _assign(operation: Operation, device: str | None) -> bool:
    if device is None or DEVICE in operation.attributes or operation.kind in _STAY:
        return False
    operation.attributes[DEVICE] = device
    return True


def _named(graph: Graph, operation: Operation) -> str | None:
    given = graph.sema.get(f"device.{operation.kind}", graph.sema.get("device"))
    return None if given is None else str(given)


def _of_operands(operation: Operation, stored: set[Operation]) -> str | None:
    makers = [operand.producer for operand in operation.operands]
    computed = [maker for maker in makers if maker.kind not in _STAY and maker not in stored]
    return _one_device(computed) if operation.kind in _FOLLOW else None


def _of_readers(operation: Operation) -> str | None:
    return _one_device([user for value in operation.results for user in value.uses])


def _one_device(operations: list[Operation]) -> str | None:
    devices = {operation.attributes.get(DEVICE) for operation in operations}
    device = devices.pop() if len(devices) == 1 else None
    return None if device is None else str(device)


def _from_weights_alone(graph: Graph) -> set[Operation]:
    """Operations that compute the same at every run."""
    stored: set[Operation] = set()
    for operation in graph.operations:
        makers = [operand.producer for operand in operation.operands]
        if operation.kind in _STORED or (makers and all(maker in stored for maker in makers)):
            stored.add(operation)
    return stored
