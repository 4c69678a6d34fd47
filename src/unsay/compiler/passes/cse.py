"""Merges operations that compute the same thing.

a = op(x) {c};  b = op(x) {c};  f(a, b)   ->   a = op(x) {c};  f(a, a)      op pure
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import Graph, Operation


def cse(graph: Graph) -> int:
    """Number of operations merged away."""
    seen: dict[object, Operation] = {}
    merged = 0
    for operation in list(graph.operations):
        if not BY_NAME[operation.kind].pure:
            continue
        first = seen.setdefault(_key(operation), operation)
        if first is not operation:
            for old, new in zip(operation.results, first.results, strict=True):
                graph.replace(old, new)
            graph.erase(operation)
            merged += 1
    return merged


def _key(operation: Operation) -> object:
    """Attributes by their text: 0.0 and -0.0 are equal numbers, and not the same."""
    types = tuple(value.type for value in operation.results)
    return operation.kind, operation.operands, repr(sorted(operation.attributes.items())), types
