"""A convolution, its bias and its relu as one operation.

    add(conv2d(x, w), reshape(b))    ->   conv2d(x, w, b)              b: [O], reshaped to [O, 1, 1] or [1, O, 1, 1]
    relu(conv2d(x, w, b))            ->   conv2d_relu(x, w, b)

where nothing else reads the inner value and both are to run on one device. Every bit is kept.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import addends, from_kind, made_by, run_together


def fuse_conv_relu(graph: Graph) -> int:
    """Number of rewrites."""
    return sum(_fuse_bias(graph, op) or _fuse_relu(graph, op) for op in list(graph.operations))


def _fuse_bias(graph: Graph, operation: Operation) -> bool:
    found = addends(operation, "conv2d") if operation.kind == "add" else None
    bias = _bias(found[0], found[1]) if found is not None else None
    if found is None or bias is None or not run_together(operation, found[1]):
        return False
    conv = found[1]
    name = operation.result.name
    result = emit(graph, "conv2d", *conv.operands, bias, name=name, before=operation, **conv.attributes)
    graph.substitute(operation, (result,))
    erase_dead(graph, conv, found[0].producer)
    return True


def _bias(value: Value, conv: Operation) -> Value | None:
    """The vector [O] that the value is, if it is one of a channel each and the convolution has none yet."""
    outputs = conv.result.type.dims[1]
    reshape = from_kind(value, "reshape")
    wanted = [(outputs, 1, 1), (1, outputs, 1, 1)]
    if reshape is None or len(conv.operands) != 2 or value.type.dims not in wanted:
        return None
    bias = reshape.operands[0]
    return bias if bias.type.dims == (outputs,) else None


def _fuse_relu(graph: Graph, operation: Operation) -> bool:
    conv = made_by(operation.operands[0], "conv2d") if operation.kind == "relu" else None
    if conv is None or not run_together(operation, conv):
        return False
    name = operation.result.name
    result = emit(graph, "conv2d_relu", *conv.operands, name=name, before=operation, **conv.attributes)
    graph.substitute(operation, (result,))
    erase_dead(graph, conv)
    return True
