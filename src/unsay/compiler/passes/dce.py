"""Removes operations whose results nothing reads.

v = op(...), v unused, op pure   ->   (nothing)
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import Graph, Operation


def dce(graph: Graph) -> int:
    """Number of operations removed."""
    dead = 0
    for operation in reversed(list(graph.operations)):
        if _is_dead(operation):
            graph.erase(operation)
            dead += 1
    return dead


def erase_dead(graph: Graph, *operations: Operation) -> None:
    """Remove these operations, where dead, and then what they alone read."""
    waiting, erased = list(operations), set[Operation]()
    while waiting:
        operation = waiting.pop()
        if operation in erased or not _is_dead(operation):
            continue
        waiting += [operand.producer for operand in operation.operands]
        graph.erase(operation)
        erased.add(operation)


def _is_dead(operation: Operation) -> bool:
    return BY_NAME[operation.kind].pure and not any(value.uses for value in operation.results)
