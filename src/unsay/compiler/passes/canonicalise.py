"""One way to write what has several: identities are removed, and what exporters spell out gets its name.

    reshape(x) -> x    transpose(x) {0, 1, ..} -> x    cast(x) -> x    broadcast_to(x) -> x      where the type stays
    slice(x) -> x    concat(x) -> x                                                              where the type stays
    reshape(reshape(x)) -> reshape(x)          transpose(transpose(x) {p}) {q} -> transpose(x) {p[q[0]], p[q[1]], ..}
    neg(neg(x)) -> x    not(not(x)) -> x
    add(c, x) -> add(x, c)    mul(c, x) -> mul(x, c)                                             c constant, x not
    add(x, 0) -> x    sub(x, 0) -> x    mul(x, 1) -> x    div(x, 1) -> x    pow(x, 1) -> x
    pow(x, 2) -> mul(x, x)    pow(x, 0.5) -> sqrt(x)    pow(x, -0.5) -> rsqrt(x)    pow(x, -1) -> reciprocal(x)
    div(1, x) -> reciprocal(x)    reciprocal(sqrt(x)) -> rsqrt(x)
    reciprocal(add(exp(neg(x)), 1)) -> sigmoid(x)
    mul(x, sigmoid(x)) -> silu(x)    div(x, add(exp(neg(x)), 1)) -> silu(x)
    maximum(x, 0) -> relu(x)
    div(e, reduce_sum(e) {[axis]}) -> softmax(x) {axis}      e = exp(sub(x, reduce_max(x) {[axis]})), keepdims

Equal as real numbers. In floats the last five lines may round differently; the rest keeps every value (x + 0 turns
-0 into 0, and is -0 afterwards, which compares equal).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from unsay.compiler.dialect.ops import declare, emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import from_kind, number, remarks, with_number

Rule: TypeAlias = Callable[[Graph, Operation], Value | None]
"""The value to put in place of the operation's result, made right before the operation; None where it does not fit."""


def canonicalise(graph: Graph) -> int:
    """Number of rewrites, until none applies."""
    total = 0
    while count := sum(_rewrite(graph, operation) for operation in list(graph.operations)):
        total += count
    return total


def _rewrite(graph: Graph, operation: Operation) -> bool:
    """Apply the first rule that fits an operation that is read; what then is read no more goes at once."""
    if not any(value.uses for value in operation.results):
        return False
    for rule in _RULES.get(operation.kind, ()):
        value = rule(graph, operation)
        if value is not None:
            _put(graph, operation, value)
            erase_dead(graph, *(operand.producer for operand in operation.operands))
            return True
    return False


def _put(graph: Graph, operation: Operation, value: Value) -> None:
    """A new value takes over the name; one that others read as well keeps its own."""
    if not value.uses:
        graph.substitute(operation, (value,))
    else:
        graph.replace(operation.result, value)
        graph.erase(operation)


def _make(graph: Graph, operation: Operation, kind: str, *operands: Value, **attributes: int) -> Value:
    name = operation.result.name
    return emit(graph, kind, *operands, name=name, before=operation, **attributes, **remarks(operation))


def _same_type(_graph: Graph, operation: Operation) -> Value | None:
    x = operation.operands[0]
    return x if x.type == operation.result.type and len(operation.operands) == 1 else None


def _reshape_twice(graph: Graph, operation: Operation) -> Value | None:
    inner = from_kind(operation.operands[0], "reshape")
    if inner is None:
        return None
    x, result = inner.operands[0], operation.result
    return declare(graph, "reshape", x, name=result.name, type=result.type, before=operation, **remarks(operation))


def _transpose(graph: Graph, operation: Operation) -> Value | None:
    x, perm = operation.operands[0], operation.integers("perm")
    if perm == tuple(range(len(perm))):
        return x
    inner = from_kind(x, "transpose")
    if inner is None:
        return None
    both = tuple(inner.integers("perm")[axis] for axis in perm)
    attributes = {"perm": both, **remarks(operation)}
    name = operation.result.name
    return emit(graph, "transpose", inner.operands[0], name=name, before=operation, **attributes)


def _twice(_graph: Graph, operation: Operation) -> Value | None:
    inner = from_kind(operation.operands[0], operation.kind)
    return inner.operands[0] if inner is not None else None


def _constant_right(graph: Graph, operation: Operation) -> Value | None:
    a, b = operation.operands
    if a.producer.kind != "constant" or b.producer.kind == "constant":
        return None
    return _make(graph, operation, operation.kind, b, a)


def _neutral(element: int) -> Rule:
    """op(x, element) -> x"""

    def rule(_graph: Graph, operation: Operation) -> Value | None:
        x, b = operation.operands
        return x if number(b) == element and x.type == operation.result.type else None

    return rule


_POWERS = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


def _power(graph: Graph, operation: Operation) -> Value | None:
    x, exponent = operation.operands
    if x.type != operation.result.type:
        return None
    if number(exponent) == 2:
        return _make(graph, operation, "mul", x, x)
    kind = _POWERS.get(number(exponent) or 0.0)
    return _make(graph, operation, kind, x) if kind else None


def _one_over(graph: Graph, operation: Operation) -> Value | None:
    a, b = operation.operands
    return _make(graph, operation, "reciprocal", b) if number(a) == 1 and b.type == operation.result.type else None


def _reciprocal_root(graph: Graph, operation: Operation) -> Value | None:
    root = from_kind(operation.operands[0], "sqrt")
    return _make(graph, operation, "rsqrt", root.operands[0]) if root is not None else None


def _sigmoid(graph: Graph, operation: Operation) -> Value | None:
    x = _logistic(operation.operands[0])
    return _make(graph, operation, "sigmoid", x) if x is not None else None


def _logistic(value: Value) -> Value | None:
    """x of add(exp(neg(x)), 1)"""
    found = with_number(value.producer) if value.producer.kind == "add" else None
    exponential = from_kind(found[0], "exp") if found is not None and found[1] == 1 else None
    negated = from_kind(exponential.operands[0], "neg") if exponential is not None else None
    return negated.operands[0] if negated is not None and negated.operands[0].type == value.type else None


def _silu_product(graph: Graph, operation: Operation) -> Value | None:
    a, b = operation.operands
    for x, gate in ((a, b), (b, a)):
        if gate.producer.kind == "sigmoid" and gate.producer.operands[0] is x:
            return _make(graph, operation, "silu", x)
    return None


def _silu_quotient(graph: Graph, operation: Operation) -> Value | None:
    x, below = operation.operands
    return _make(graph, operation, "silu", x) if _logistic(below) is x else None


def _relu(graph: Graph, operation: Operation) -> Value | None:
    found = with_number(operation)
    if found is None or found[1] != 0 or found[0].type != operation.result.type:
        return None
    return _make(graph, operation, "relu", found[0])


def _softmax(graph: Graph, operation: Operation) -> Value | None:
    e, total = operation.operands
    axis = _kept_axis(total, "reduce_sum", e)
    difference = from_kind(e.producer.operands[0], "sub") if axis is not None and e.producer.kind == "exp" else None
    if axis is None or difference is None:
        return None
    x, greatest = difference.operands
    if _kept_axis(greatest, "reduce_max", x) != axis:
        return None
    return _make(graph, operation, "softmax", x, axis=axis)


def _kept_axis(value: Value, kind: str, x: Value) -> int | None:
    """The axis, from the front, if the value is kind(x) over that one axis with its place kept."""
    reduction = from_kind(value, kind)
    if reduction is None or reduction.operands[0] is not x or not reduction.flag("keepdims"):
        return None
    axes = reduction.integers("axes")
    return axes[0] % x.type.rank if len(axes) == 1 else None


_RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (_same_type, _reshape_twice),
    "broadcast_to": (_same_type,),
    "cast": (_same_type,),
    "slice": (_same_type,),
    "concat": (_same_type,),
    "transpose": (_transpose,),
    "neg": (_twice,),
    "not": (_twice,),
    "add": (_constant_right, _neutral(0)),
    "sub": (_neutral(0),),
    "mul": (_constant_right, _neutral(1), _silu_product),
    "div": (_neutral(1), _one_over, _silu_quotient, _softmax),
    "pow": (_neutral(1), _power),
    "reciprocal": (_reciprocal_root, _sigmoid),
    "maximum": (_relu,),
}
