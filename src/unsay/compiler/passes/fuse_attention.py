"""Attention as one operation.

    matmul(softmax(s) {axis = -1}, v)                   ->   sdpa(q, k, v) {scale}
    matmul(softmax(add(s, m)) {axis = -1}, v)           ->   sdpa(q, k, v, m) {scale}
    matmul(softmax(select(c, s, -inf)) {axis = -1}, v)  ->   sdpa(q, k, v, c) {scale}      c bool: true is kept
    matmul(softmax(select(c, -inf, s)) {axis = -1}, v)  ->   sdpa(q, k, v, not(c)) {scale}

where s = scale * (q k^T), the scale a product of numbers > 0 that multiply or divide q, k^T or their product:

    s = mul(matmul(q, t), c)    s = div(matmul(q, t), c)    s = matmul(mul(q, a), mul(t, b))    ...     k = transpose(t)

and nothing else reads the inner values; `canonicalise` has moved constants right and found the softmax. Equal as real
numbers where each row has something left to attend to. A row of nothing is 0 afterwards; spelled out, it was 0 / 0.
"""

from __future__ import annotations

import math

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import FLOATS
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import made_by, number, remarks, run_together
from unsay.isa.formats import DType


def fuse_attention(graph: Graph) -> int:
    """Number of attentions found."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "matmul")


def _fuse(graph: Graph, product: Operation) -> bool:
    softmax = made_by(product.operands[0], "softmax")
    if softmax is None or not run_together(product, softmax):
        return False
    masked = softmax.operands[0]
    scaled, mask, inverted = _mask(masked)
    scores, scale = _unscaled(scaled)
    inner = made_by(scores, "matmul")
    if inner is None or not _fits(softmax, inner, masked, mask, product):
        return False
    q, query_scale = _unscaled(inner.operands[0])
    k, key_scale = _key(graph, inner.operands[1], product)
    attributes = {"scale": scale * query_scale * key_scale, **remarks(product)}
    masks = [_kept(graph, mask, inverted, product)] if mask is not None else []
    operands = (q, k, product.operands[1], *masks)
    result = emit(graph, "sdpa", *operands, name=product.result.name, before=product, **attributes)
    graph.substitute(product, (result,))
    erase_dead(graph, softmax)
    return True


def _mask(value: Value) -> tuple[Value, Value | None, bool]:
    """(scores, mask, whether true is what goes) of masked scores; a sum's mask is the operand that is no product."""
    select = made_by(value, "select")
    if select is not None:
        condition, a, b = select.operands
        if number(b) == -math.inf:
            return a, condition, False
        if number(a) == -math.inf:
            return b, condition, True
    total = made_by(value, "add")
    if total is None:
        return value, None, False
    for scores, mask in (total.operands, total.operands[::-1]):
        if made_by(_unscaled(scores)[0], "matmul") is not None and scores is not mask:
            return scores, mask, False
    return value, None, False


def _unscaled(value: Value) -> tuple[Value, float]:
    """(x, c) of x * c, the factors and divisors > 0 taken off one after the other."""
    scale = 1.0
    while value.producer.kind in ("mul", "div"):
        x, constant = value.producer.operands
        factor = number(constant)
        if factor is None or not 0 < factor < math.inf or x.type != value.type:
            break
        scale = scale * factor if value.producer.kind == "mul" else scale / factor
        value = x
    return value, scale


def _key(graph: Graph, transposed: Value, before: Operation) -> tuple[Value, float]:
    """(k, scale) of scale * k^T"""
    transposed, outer = _unscaled(transposed)
    axes = list(range(transposed.type.rank))
    axes[-2:] = axes[:-3:-1]
    if transposed.producer.kind == "transpose":
        perm = transposed.producer.integers("perm")
        transposed, axes = transposed.producer.operands[0], [perm[axis] for axis in axes]
    if axes == sorted(axes):
        k, inner = _unscaled(transposed)
        return k, outer * inner
    name = f"{transposed.name}.k"
    return emit(graph, "transpose", transposed, name=name, before=before, perm=tuple(axes)), outer


def _kept(graph: Graph, mask: Value, inverted: bool, before: Operation) -> Value:
    return emit(graph, "not", mask, name=f"{mask.name}.kept", before=before) if inverted else mask


def _fits(softmax: Operation, inner: Operation, masked: Value, mask: Value | None, product: Operation) -> bool:
    """Along the last axis, all of one rank, nothing made larger by the mask."""
    scores, operands = inner.result.type, (*inner.operands, product.operands[1])
    last = softmax.integer("axis") in (-1, scores.rank - 1)
    alike = masked.type == scores and scores.dtype in FLOATS and all(x.type.rank == scores.rank for x in operands)
    return last and alike and (mask is None or mask.type.dtype in (DType.BOOL, scores.dtype))
