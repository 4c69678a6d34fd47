"""The three products before attention, and the rotation of two of them, as one operation.

    attention(rope(linear(x, wq, bq)), rope(linear(x, wk, bk)), linear(x, wv, bv))
        ->   q, k, v = qkv(x, wq, wk, wv, bq, bk, bv);  attention(q, k, v)

where the inner values are read once, the weights are of one format, all products have a bias or none has, and both
ropes rotate alike. Rows of a product do not depend on each other, so each keeps its bits.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import build
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import made_by

_SHARED = ("head_dim", "base", "pairing")


def fuse_qkv_rope(graph: Graph) -> int:
    """Number of attentions whose inputs were fused."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "attention")


def _fuse(graph: Graph, attention: Operation) -> bool:
    q_rope, k_rope = (made_by(value, "rope") for value in attention.operands[:2])
    if q_rope is None or k_rope is None or _rotation(q_rope) != _rotation(k_rope):
        return False
    made = [made_by(value, "linear") for value in (q_rope.operands[0], k_rope.operands[0], attention.operands[2])]
    linears = [linear for linear in made if linear is not None]
    if len(linears) != 3 or not _alike(linears):
        return False
    operands = [linears[0].operands[0], *(linear.operands[1] for linear in linears)]
    operands += [bias for linear in linears for bias in linear.operands[2:]]
    attributes = {name: attention.attributes[name] for name in ("num_heads", "num_kv_heads")}
    attributes |= {name: q_rope.attributes[name] for name in _SHARED}
    names = [value.name for value in attention.operands]
    fused = build(graph, "qkv", operands, attributes, names, before=attention)
    for operation, value in zip((q_rope, k_rope, linears[2]), fused.results, strict=True):
        graph.substitute(operation, (value,))
    erase_dead(graph, *linears[:2])
    return True


def _rotation(rope: Operation) -> list[object]:
    return [rope.attributes[name] for name in _SHARED]


def _alike(linears: list[Operation]) -> bool:
    """One operand, one weight format, as many biases."""
    first = linears[0]
    return all(
        linear.operands[0] is first.operands[0]
        and linear.operands[1].type.dtype == first.operands[1].type.dtype
        and len(linear.operands) == len(first.operands)
        for linear in linears
    )
