"""A product added to the residual stream as one operation.

    add(r, linear(x, w, b))   ->   linear_add(r, x, w, b)

where nothing else reads the product and nothing reads r afterwards (the result takes over its memory).
add commutes in every bit, so r may be on either side.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import addends
from unsay.compiler.verify.spec import is_last_use


def fuse_residual(graph: Graph) -> int:
    """Number of additions fused."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "add")


def _fuse(graph: Graph, operation: Operation) -> bool:
    found = addends(operation, "linear")
    if found is None:
        return False
    residual, linear = found
    if residual in linear.operands or not is_last_use(graph, residual, operation):
        return False
    result = emit(graph, "linear_add", residual, *linear.operands, name=operation.result.name, before=operation)
    graph.substitute(operation, (result,))
    erase_dead(graph, linear)
    return True
