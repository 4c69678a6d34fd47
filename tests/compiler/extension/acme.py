"""An extension as somebody else would write it: hard swish as one operation, and the pass that finds it.

The example of docs/extending.md is this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unsay.compiler.dialect import tensor_shapes
from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.op import Op
from unsay.compiler.dialect.ops import declare, emit
from unsay.compiler.extension import Extension, OpExtension, PassExtension, Rule
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.pipeline import Pass
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.scopes import Scope


def hard_swish(d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    """x * min(max(x + 3, 0), 6)"""
    (x,) = operands
    return (d.mul(x, d.minimum(d.maximum(d.add(x, 3.0), 0.0), 6.0)),)


def in_baseline_operations(graph: Graph, operation: Operation) -> list[Value]:
    """The same with four operations of the baseline."""
    (x,) = operation.operands
    scalar = replace(x.type, dims=(), layout="row")
    three, zero, six = (
        declare(graph, "constant", name="c", type=scalar, value=(number,), before=operation)
        for number in (3.0, 0.0, 6.0)
    )
    y = emit(graph, "add", x, three, name="y", before=operation)
    y = emit(graph, "maximum", y, zero, name="y", before=operation)
    y = emit(graph, "minimum", y, six, name="y", before=operation)
    return [emit(graph, "mul", x, y, name="y", before=operation)]


def acme_fuse_relu(graph: Graph) -> int:
    """maximum(x, relu(x)) -> relu(x)"""
    fused = 0
    for operation in list(graph.operations):
        if operation.kind == "maximum" and operation.operands[1].producer.kind == "relu":
            x, y = operation.operands
            if y.producer.operands[0] is x and y.type == operation.result.type:
                graph.substitute(operation, [emit(graph, "relu", x, name="y", before=operation)])
                fused += 1
    return fused


ROW = Op(
    "acme.hard_swish", ("x",), (), ("y",), tensor_shapes.unary, "y = x * min(max(x + 3, 0), 6)",
    value_invariants=("y >= -2.25",), family="tensor",
)  # fmt: skip

EXAMPLE = """graph swish(B: 1..64) {
  %x = input() {name = "x"} : tensor<B x 8 x f32>
  %y = acme.hard_swish(%x) : tensor<B x 8 x f32>
  output(%y)
}"""

CASE = """graph twice(B: 1..64) {
  %x = input() {name = "x"} : tensor<B x 8 x f32>
  %r = relu(%x) : tensor<B x 8 x f32>
  %y = maximum(%x, %r) : tensor<B x 8 x f32>
  output(%y)
}"""

EXTENSION = Extension(
    "acme",
    baseline="1.0",
    ops=(OpExtension(ROW, hard_swish, (EXAMPLE,), in_baseline_operations),),
    passes=(
        PassExtension(
            Pass(acme_fuse_relu),
            (Rule(Axiom("acme.relu-again", "maximum(x, relu(x)) == relu(x)"), (Scope("x: T K", {"T": 2, "K": 3}),)),),
            (CASE,),
        ),
    ),
)
