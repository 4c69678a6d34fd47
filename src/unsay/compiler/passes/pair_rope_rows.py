"""Reorders the rows of Q and K weights so that elements that RoPE rotates together are adjacent.

    attention(rope(linear(x, wq, bq)), rope(linear(x, wk, bk)), v)
        ->   attention(rope(linear(x, P wq, P bq)), rope(linear(x, P wk, P bk)), v)        rope of pairing "halves"

P moves element i of a head to 2i and i + D/2 to 2i + 1 (layout "paired:D"). It holds because
linear(x, P w) = P linear(x, w) row by row, rope rotates the same pairs wherever they lie, and (P q) . (P k) = q . k:
a sum over d in another order. docs/numerics.md N8 makes the new order the definition.
"""

from __future__ import annotations

from dataclasses import replace

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import ROW, paired
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import made_by


def pair_rope_rows(graph: Graph) -> int:
    """Number of attentions changed."""
    changed = 0
    for operation in list(graph.operations):
        if operation.kind != "attention":
            continue
        q, k, v = operation.operands
        if not (_is_movable(q) and _is_movable(k)):
            continue
        moved = (_move(graph, q, operation), _move(graph, k, operation), v)
        result = emit(graph, "attention", *moved, name=operation.result.name, before=operation, **operation.attributes)
        graph.substitute(operation, (result,))
        erase_dead(graph, q.producer, k.producer)
        changed += 1
    return changed


def _is_movable(value: Value) -> bool:
    rope = made_by(value, "rope")
    if rope is None or rope.attributes["pairing"] != "halves" or value.type.layout != ROW:
        return False
    linear = made_by(rope.operands[0], "linear")
    return linear is not None and all(weight.producer.kind == "weight" for weight in linear.operands[1:])


def _move(graph: Graph, value: Value, before: Operation) -> Value:
    """rope(linear(...)) anew, over reordered weights."""
    rope = value.producer
    linear = rope.operands[0].producer
    layout = paired(rope.integer("head_dim"))
    weights = [_reordered(graph, weight, layout, before) for weight in linear.operands[1:]]
    y = emit(graph, "linear", linear.operands[0], *weights, name=linear.result.name, before=before)
    return emit(graph, "rope", y, name=value.name, before=before, **rope.attributes)


def _reordered(graph: Graph, weight: Value, layout: str, before: Operation) -> Value:
    result = (weight.name, replace(weight.type, layout=layout))
    return graph.add("weight", (), weight.producer.attributes, (result,), before=before).result
