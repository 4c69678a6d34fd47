"""A sum, the RMS norm of it and the quantising of that as one operation.

    s = add(a, b);  n = rms_norm(s, gamma) {f32}           ->   s, n = add_rms_norm(a, b, gamma) {f32}
    n = rms_norm(..) {f32};  q = quantise(n) {q8w}         ->   q = rms_norm(..) {q8w}
    s, n = add_rms_norm(..) {f32};  q = quantise(n) {q8w}  ->   s, q = add_rms_norm(..) {q8w}

where one norm reads s (anything else may: the residual goes on), gamma is there when s is first read, only the quantise
reads n, a and b are of one type, and all are to run on one device. Every bit is kept.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import build
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.match import from_kind, run_together

_NORMS = ("rms_norm", "add_rms_norm")


def fuse_residual_norm_quantise(graph: Graph) -> int:
    """Number of rewrites."""
    sums = sum(_fuse_sum(graph, operation) for operation in list(graph.operations))
    return sums + sum(_fuse_quantise(graph, operation) for operation in list(graph.operations))


def _fuse_sum(graph: Graph, norm: Operation) -> bool:
    total = from_kind(norm.operands[0], "add") if norm.kind == "rms_norm" else None
    if total is None or norm.string("output") != "f32" or not run_together(norm, total):
        return False
    a, b = total.operands
    gamma, place = norm.operands[1], graph.operations.index
    first = min(total.result.uses, key=place)
    norms = [user for user in total.result.uses if user.kind == "rms_norm"]
    if a.type != b.type or len(norms) != 1 or place(gamma.producer) > place(first):
        return False
    names = (total.result.name, norm.result.name)
    fused = build(graph, "add_rms_norm", (a, b, gamma), norm.attributes, names, before=first)
    graph.substitute(norm, fused.results[1:])
    graph.substitute(total, fused.results[:1])
    return True


def _fuse_quantise(graph: Graph, operation: Operation) -> bool:
    norm = operation.operands[0].producer if operation.kind == "quantise" else None
    if norm is None or norm.kind not in _NORMS or not run_together(operation, norm):
        return False
    normed = norm.results[-1]
    if operation.operands[0] is not normed or len(normed.uses) != 1 or operation.string("output") != "q8w":
        return False
    names = [*(value.name for value in norm.results[:-1]), operation.result.name]
    attributes = {**norm.attributes, "output": "q8w"}
    fused = build(graph, norm.kind, norm.operands, attributes, names, before=norm)
    graph.substitute(operation, fused.results[-1:])
    for old, new in zip(norm.results[:-1], fused.results[:-1], strict=True):
        graph.replace(old, new)
        old.name, new.name = new.name, old.name
    graph.erase(norm)
    return True
