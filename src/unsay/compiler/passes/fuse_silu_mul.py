"""The gate of a feed-forward block as one operation.

    mul(silu(g), u)   ->   silu_mul(g, u)       also mul(u, silu(g)): a product commutes in every bit
    quantise(silu_mul(g, u)) {output = "q8w"}   ->   silu_mul(g, u) {output = "q8w"}

where nothing else reads the inner value.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import addends, made_by


def fuse_silu_mul(graph: Graph) -> int:
    """Number of rewrites."""
    return sum(_fuse_product(graph, op) or _fuse_quantise(graph, op) for op in list(graph.operations))


def _fuse_product(graph: Graph, operation: Operation) -> bool:
    found = addends(operation, "silu") if operation.kind == "mul" else None
    if found is None:
        return False
    up, silu = found
    result = emit(graph, "silu_mul", silu.operands[0], up, name=operation.result.name, before=operation, output="f32")
    graph.substitute(operation, (result,))
    erase_dead(graph, silu)
    return True


def _fuse_quantise(graph: Graph, operation: Operation) -> bool:
    inner = made_by(operation.operands[0], "silu_mul") if operation.kind == "quantise" else None
    if inner is None or operation.string("output") != "q8w":
        return False
    result = emit(graph, "silu_mul", *inner.operands, name=operation.result.name, before=operation, output="q8w")
    graph.substitute(operation, (result,))
    erase_dead(graph, inner)
    return True
