"""The RMS norm that exporters spell out, by its name.

    mul(mul(x, rsqrt(add(mean(mul(x, x)), eps))), gamma)   ->   rms_norm(x, gamma) {eps}
    mul(div(x, sqrt(add(mean(mul(x, x)), eps))), gamma)    ->   rms_norm(x, gamma) {eps}

where mean = reduce_mean {axes = [-1], keepdims = true}, x is f32, gamma is [E] and on either side, and nothing else
reads the inner values. `canonicalise` has made mul(x, x) of pow(x, 2), and rsqrt of 1 / sqrt and of reciprocal(sqrt).
Equal as real numbers.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import made_by, remarks, run_together, with_number
from unsay.isa.formats import DType


def fuse_rms_norm(graph: Graph) -> int:
    """Number of norms found."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "mul")


def _fuse(graph: Graph, operation: Operation) -> bool:
    for unit, gamma in (operation.operands, operation.operands[::-1]):
        found = _unit(unit)
        if found is not None and _fits(operation, unit, found[0], gamma):
            x, eps = found
            attributes = {"eps": eps, "output": "f32", **remarks(operation)}
            name = operation.result.name
            result = emit(graph, "rms_norm", x, gamma, name=name, before=operation, **attributes)
            graph.substitute(operation, (result,))
            erase_dead(graph, unit.producer)
            return True
    return False


def _fits(operation: Operation, unit: Value, x: Value, gamma: Value) -> bool:
    is_vector = gamma.type.dims == x.type.dims[-1:] and gamma.type.dtype is DType.F32
    same_type = x.type.dtype is DType.F32 and operation.result.type == x.type
    return is_vector and same_type and run_together(operation, unit.producer)


def _unit(value: Value) -> tuple[Value, float] | None:
    """(x, eps) of x / sqrt(mean(x * x) + eps)"""
    quotient, product = made_by(value, "div"), made_by(value, "mul")
    if quotient is not None:
        x, below = quotient.operands
        root = made_by(below, "sqrt")
        return _mean_of_squares(root.operands[0], x) if root is not None else None
    for x, factor in (product.operands, product.operands[::-1]) if product is not None else ():
        root = made_by(factor, "rsqrt")
        if root is not None:
            return _mean_of_squares(root.operands[0], x)
    return None


def _mean_of_squares(value: Value, x: Value) -> tuple[Value, float] | None:
    """(x, eps) if the value is mean(x * x) + eps over the last dimension."""
    total = made_by(value, "add")
    found = with_number(total) if total is not None else None
    mean = made_by(found[0], "reduce_mean") if found is not None else None
    square = made_by(mean.operands[0], "mul") if mean is not None else None
    if found is None or mean is None or square is None or square.operands != (x, x) or not found[1] > 0:
        return None
    is_last = mean.integers("axes") in ((-1,), (x.type.rank - 1,)) and mean.flag("keepdims")
    return (x, float(found[1])) if is_last else None
