"""Computes in the element type that the graph wants on a device, from its products on.

    graph g() sema {precision.gpu = "f16"}, all on the gpu:

    matmul(a, b)               :=   cast(matmul(cast(a) {f16}, cast(b) {f16})) {f32}          also convolutions
    relu(cast(x) {f32})        :=   cast(relu(x)) {f32}                                       x in f16
    cast(cast(x) {f32}) {f16}  ->   x                                                         x in f16

Operations that work element by element and lose no more than they round, that slide over pictures, or that only move
elements follow an operand that was computed in the narrow type, if the others were, too, or are weights or constants.
All else (exp, sums, norms, softmax, quotients) stays in f32. The first two lines are definitions: they round. As real
numbers cast(x) is x. The last line is equal in every bit.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import BY_NAME, emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import DTYPES, TensorType
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import from_kind
from unsay.isa.formats import DType

_PRODUCTS = frozenset({"matmul", "matmul_silu", "conv2d", "conv2d_relu"})
_FOLLOW = frozenset(
    ("relu", "silu", "gelu", "sigmoid", "tanh", "neg", "abs", "add", "sub", "mul", "maximum", "minimum", "select",
     "max_pool2d", "average_pool2d", "transpose", "reshape", "broadcast_to", "concat", "slice", "gather", "reorder")
)  # fmt: skip
_STORED = frozenset({"weight", "constant"})


def propagate_precision(graph: Graph) -> int:
    """Number of operations done in another element type."""
    return sum(_narrow(graph, operation) for operation in list(graph.operations))


def _narrow(graph: Graph, operation: Operation) -> bool:
    dtype = _precision(graph, operation)
    if dtype is None or not (operation.kind in _PRODUCTS or _follows(operation, dtype)):
        return False
    before, name = operation.operands, operation.result.name
    operands = [_cast(graph, operand, dtype, operation) for operand in before]
    result = (f"{name}.{dtype}", _result_type(graph, operation, operands, dtype))
    narrow = graph.add(operation.kind, operands, operation.attributes, [result], before=operation)
    graph.substitute(operation, (emit(graph, "cast", narrow.result, name=name, before=operation, dtype="f32"),))
    erase_dead(graph, *(operand.producer for operand in before))
    return True


def _precision(graph: Graph, operation: Operation) -> str | None:
    """The element type wanted where the operation runs, if it gives f32 now."""
    if len(operation.results) != 1 or operation.result.type.dtype is not DType.F32:
        return None
    wanted = graph.sema.get(f"precision.{operation.result.type.device}")
    return None if wanted is None else str(wanted)


def _follows(operation: Operation, dtype: str) -> bool:
    floats = [operand for operand in operation.operands if operand.type.dtype is DType.F32]
    computed = [operand for operand in floats if operand.producer.kind not in _STORED]
    widened = [operand for operand in computed if _widened_from(operand, dtype) is not None]
    return operation.kind in _FOLLOW and len(widened) == len(computed) > 0


def _widened_from(value: Value, dtype: str) -> Value | None:
    """x of cast(x) {f32}, x of the narrow type."""
    cast = from_kind(value, "cast")
    narrow = cast is not None and cast.operands[0].type.dtype is DTYPES[dtype] and value.type.dtype is DType.F32
    return cast.operands[0] if cast is not None and narrow else None


def _cast(graph: Graph, value: Value, dtype: str, before: Operation) -> Value:
    if value.type.dtype is not DType.F32:
        return value
    name = f"{value.name}.{dtype}"
    return _widened_from(value, dtype) or emit(graph, "cast", value, name=name, before=before, dtype=dtype)


def _result_type(graph: Graph, operation: Operation, operands: list[Value], dtype: str) -> TensorType:
    rule = BY_NAME[operation.kind].rule
    if rule is None:
        return operation.result.type.of(DTYPES[dtype])
    (result,) = rule([operand.type for operand in operands], operation.attributes, graph.dims)
    return result
