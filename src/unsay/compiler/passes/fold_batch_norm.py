"""A batch norm after a convolution goes into the weights of the convolution.

    batch_norm(conv2d(x, w), s, t, m, v) {eps}      ->   conv2d(x, w * k, t - m * k)
    batch_norm(conv2d(x, w, b), s, t, m, v) {eps}   ->   conv2d(x, w * k, (b - m) * k + t)

with k = s * rsqrt(v + eps) [O], and [O, 1, 1, 1] where it meets w; all that is new comes from weights alone. Nothing
else reads the convolution, w and the vectors are weights or constants, v >= 0, and both are to run on one device. Equal
as real numbers: a convolution is linear in w.
"""

from __future__ import annotations

from dataclasses import replace

from unsay.compiler.dialect.ops import declare, emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import made_by, run_together

_STORED = frozenset({"weight", "constant"})


def fold_batch_norm(graph: Graph) -> int:
    """Number of norms folded."""
    return sum(_fold(graph, operation) for operation in list(graph.operations) if operation.kind == "batch_norm")


def _fold(graph: Graph, norm: Operation) -> bool:
    conv = made_by(norm.operands[0], "conv2d")
    if conv is None or not run_together(norm, conv):
        return False
    stored = (*conv.operands[1:], *norm.operands[1:])
    if any(value.producer.kind not in _STORED for value in stored):
        return False
    weight, bias = _Writer(graph, norm, conv).folded()
    name = norm.result.name
    result = emit(graph, "conv2d", conv.operands[0], weight, bias, name=name, before=norm, **conv.attributes)
    graph.substitute(norm, (result,))
    erase_dead(graph, conv)
    return True


class _Writer:
    """Writes the new weights before the norm, under names that begin as the norm's."""

    def __init__(self, graph: Graph, norm: Operation, conv: Operation) -> None:
        self._graph = graph
        self._norm = norm
        self._conv = conv

    def folded(self) -> tuple[Value, Value]:
        """w * k and (b - m) * k + t"""
        _, scale, shift, mean, var = self._norm.operands
        w, *biases = self._conv.operands[1:]
        k = self._emit("mul", scale, self._emit("rsqrt", self._emit("add", var, self._eps(var))))
        wide = replace(k.type, dims=(*k.type.dims, 1, 1, 1))
        column = declare(self._graph, "reshape", k, name=self._name("reshape"), type=wide, before=self._norm)
        weight = self._emit("mul", w, column)
        if not biases:
            return weight, self._emit("sub", shift, self._emit("mul", mean, k))
        return weight, self._emit("add", self._emit("mul", self._emit("sub", biases[0], mean), k), shift)

    def _eps(self, var: Value) -> Value:
        scalar = replace(var.type, dims=())
        eps = self._norm.number("eps")
        return declare(self._graph, "constant", name=self._name("eps"), type=scalar, before=self._norm, value=(eps,))

    def _emit(self, kind: str, *operands: Value) -> Value:
        return emit(self._graph, kind, *operands, name=self._name(kind), before=self._norm)

    def _name(self, kind: str) -> str:
        return f"{self._norm.result.name}.{kind}"
