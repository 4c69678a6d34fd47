"""Gives every product with a quantised weight a quantised operand.

    linear(x, w, ...)   :=   linear(quantise(x) {output = "q8a"}, w, ...)       w quantised, x made by attention
                             linear(quantise(x) {output = "q8w"}, w, ...)       w quantised, x made otherwise

This is a definition, not an equality: it is where the arithmetic of docs/numerics.md N3, N3w and N4 enters.
Everything after it keeps the bits.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.isa.formats import QUANTISED_WEIGHTS, DType


def quantise_activations(graph: Graph) -> int:
    """Number of products changed; products of one operand share one quantise."""
    products = [operation for operation in graph.operations if _needs_quantised(operation)]
    quantised: dict[Value, Value] = {}
    for operation in products:
        x, *others = operation.operands
        if x not in quantised:
            output = "q8a" if x.producer.kind == "attention" else "q8w"
            quantised[x] = emit(graph, "quantise", x, name=f"{x.name}.{output}", before=operation, output=output)
        y = emit(graph, "linear", quantised[x], *others, name=operation.result.name, before=operation)
        graph.substitute(operation, (y,))
    return len(products)


def _needs_quantised(operation: Operation) -> bool:
    if operation.kind != "linear":
        return False
    x, w = operation.operands[:2]
    return x.type.dtype is DType.F32 and w.type.dtype in QUANTISED_WEIGHTS
