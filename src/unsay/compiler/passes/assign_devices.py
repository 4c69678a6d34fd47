"""Says of each operation where it is to run, from what the graph says of kinds of operations.

    graph g() sema {device.conv2d = "gpu"}:   conv2d(..) {..}   ->   conv2d(..) {.., sema.device = "gpu"}
    relu(y), y made by an operation for the gpu                 ->   relu(y) {sema.device = "gpu"}

`device.KIND` is of operations of that kind, `device` of all others. An operation that neither names, and that works
element by element or slides over a picture, stays with its operands where all that are computed are for one device. Any
other is left where it is. Nothing moves yet: insert_reorders does that. A remark that is there already stays.
"""

from __future__ import annotations

from unsay.compiler.dialect.devices import PICTURE_OPS
from unsay.compiler.dialect.sema import DEVICE
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.elementwise import ELEMENTWISE

_STAY = frozenset({"weight", "input", "constant", "tokens", "iota", "size", "output", "transfer"})
"""Operations that have no place: they are what others read, or say themselves where they go."""

_FOLLOW = ELEMENTWISE | PICTURE_OPS | {"batch_norm"}


def assign_devices(graph: Graph) -> int:
    """Number of operations given a device."""
    assigned = 0
    for operation in graph.operations:
        device = _device(graph, operation)
        if device is not None and DEVICE not in operation.attributes:
            operation.attributes[DEVICE] = device
            assigned += 1
    return assigned


def _device(graph: Graph, operation: Operation) -> str | None:
    if operation.kind in _STAY:
        return None
    given = graph.sema.get(f"device.{operation.kind}", graph.sema.get("device"))
    if given is None and operation.kind in _FOLLOW:
        makers = [operand.producer for operand in operation.operands if operand.producer.kind not in _STAY]
        devices = {maker.attributes.get(DEVICE) for maker in makers}
        given = devices.pop() if len(devices) == 1 else None
    return str(given) if given is not None else None
