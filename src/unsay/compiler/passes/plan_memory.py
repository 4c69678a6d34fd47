"""Gives every value its bytes in the arena of its device, for the largest sizes that can be.

    y = op(x)   ->   y = op(x) {sema.offsets = [0]}          and graph g() sema {arena_bytes.cpu = 4096}

Values that live at one time are apart (verify/memory_plan.py says when that is, and checks the result); others share.
An upper bound of a size comes from the ranges of dimensions and the constraints of the graph (ir/bounds.py), so that no
run needs more. First fit in order of birth, offsets are multiples of 64.
"""

from __future__ import annotations

from unsay.compiler.dialect.sema import OFFSETS
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.lower.memory import Buffer, place
from unsay.compiler.verify.memory_plan import Life, lives
from unsay.errors import IrError

_MOST_BYTES = 1 << 59
"""No text has longer numbers, and no machine that much memory."""


def plan_memory(graph: Graph) -> int:
    """Number of operations whose results were placed, or placed elsewhere."""
    offsets: dict[Operation, tuple[int, ...]] = {}
    for device, values in _by_device(lives(graph)).items():
        buffers = [Buffer(life.num_bytes, life.first, life.last) for life in values]
        graph.sema[f"arena_bytes.{device}"] = _checked(graph, place(buffers), device)
        for life, buffer in zip(values, buffers, strict=True):
            maker = life.value.producer
            offsets[maker] = (*offsets.get(maker, ()), buffer.offset)
    changed = 0
    for operation in graph.operations:
        old = operation.attributes.pop(OFFSETS, None)
        changed += old != offsets.get(operation)
        if operation in offsets:
            operation.attributes[OFFSETS] = offsets[operation]
    return changed


def _checked(graph: Graph, num_bytes: int, device: str) -> int:
    if num_bytes > _MOST_BYTES:
        problem = f"{graph.name} may take {num_bytes:.1e} bytes on the {device}"
        hint = "give its dimensions narrower ranges, or a constraint that bounds their product"
        raise IrError(f"{problem}: {hint}", *graph.location)
    return num_bytes


def _by_device(values: list[Life]) -> dict[str, list[Life]]:
    devices: dict[str, list[Life]] = {}
    for life in values:
        devices.setdefault(life.value.type.device, []).append(life)
    return devices
