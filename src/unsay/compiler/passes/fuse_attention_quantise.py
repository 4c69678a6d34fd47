"""Attention that writes its result quantised.

    quantise(attention(q, k, v) {output = "f32"}) {output = "q8a"}   ->   attention(q, k, v) {output = "q8a"}

where nothing else reads the result and the head size is a multiple of 32, so that a block of 32 lies inside a head.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.match import made_by
from unsay.isa.formats import QUANT_BLOCK


def fuse_attention_quantise(graph: Graph) -> int:
    """Number of attentions changed."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "quantise")


def _fuse(graph: Graph, operation: Operation) -> bool:
    attention = made_by(operation.operands[0], "attention")
    if attention is None or attention.integer("head_dim") % QUANT_BLOCK or operation.string("output") != "q8a":
        return False
    attributes = {**attention.attributes, "output": "q8a"}
    result = emit(graph, "attention", *attention.operands, name=operation.result.name, before=operation, **attributes)
    graph.substitute(operation, (result,))
    graph.erase(attention)
    return True
