"""A norm that writes its result quantised.

    quantise(norm(x, ...) {output = "f32"}) {output = "q8w"}   ->   norm(x, ...) {output = "q8w"}

where norm is rms_norm or layer_norm, and nothing else reads its result.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import made_by


def fuse_norm_quantise(graph: Graph) -> int:
    """Number of norms changed."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "quantise")


def _fuse(graph: Graph, operation: Operation) -> bool:
    x = operation.operands[0]
    norm = made_by(x, "rms_norm") or made_by(x, "layer_norm")
    if norm is None or operation.string("output") != "q8w":
        return False
    attributes = {**norm.attributes, "output": "q8w"}
    result = emit(graph, norm.kind, *norm.operands, name=operation.result.name, before=operation, **attributes)
    graph.substitute(operation, (result,))
    erase_dead(graph, norm)
    return True
