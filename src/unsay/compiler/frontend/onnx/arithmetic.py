"""Rules for ONNX operators that work element by element, or reduce: mostly one operation of LLMIR each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsay.compiler.frontend.onnx.builder import Builder, Item, number_of
from unsay.compiler.frontend.onnx.call import Call, axis_of
from unsay.compiler.frontend.onnx.rule import Rule, Run, rule
from unsay.compiler.frontend.onnx.sizes import RefusalError, product
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.types import FLOATS


def _unary(kind: str) -> Run:
    return lambda call: call.builder.emit(kind, call.value(0))


def _binary(kind: str) -> Run:
    return lambda call: call.builder.emit(kind, call.value(0), call.value(1))


def _variadic(kind: str) -> Run:
    def run(call: Call) -> Value:
        first, *others = call.values()
        for other in others:
            first = call.builder.emit(kind, first, other)
        return first

    return run


def _mul(call: Call) -> Value:
    """x * sigmoid(x) -> silu(x)"""
    a, b = call.values()
    for x, gate in ((a, b), (b, a)):
        if gate.producer.kind == "sigmoid" and gate.producer.operands[0] is x:
            return call.builder.emit("silu", x)
    return call.builder.emit("mul", a, b)


def _div(call: Call) -> Value:
    if call.dtype(0) not in FLOATS:
        raise RefusalError("a division of integers that are data")
    return call.builder.emit("div", call.value(0), call.value(1))


def _pow(call: Call) -> Value:
    """x^2 -> x * x, x^0.5 -> sqrt(x); the exponent may be of another element type"""
    b, x, power = call.builder, call.value(0), number_of(call.item(1))
    if power is None:
        return b.emit("pow", x, b.cast(call.value(1), x.type.dtype))
    if power == 2.0:
        return b.emit("mul", x, x)
    return b.emit("sqrt", x) if power == 0.5 else b.emit("pow", x, b.number(power, x))


def _ceil(call: Call) -> Value:
    """ceil(x) = -floor(-x)"""
    b = call.builder
    return b.emit("neg", b.emit("floor", b.emit("neg", call.value(0))))


def _clip(call: Call) -> Value:
    b, x = call.builder, call.value(0)
    if call.has(1):
        x = b.emit("maximum", x, _like(b, call.item(1), x))
    return b.emit("minimum", x, _like(b, call.item(2), x)) if call.has(2) else x


def _like(b: Builder, item: Item, x: Value) -> Value:
    """A limit, which older versions give as a float whatever x is."""
    number = number_of(item)
    return b.lift(item) if number is None else b.number(number, x)


def _sign(call: Call) -> Value:
    """1 where x > 0, -1 where x < 0, else 0"""
    b, x = call.builder, call.value(0)
    signs = [b.cast(b.emit(kind, x, b.number(0, x)), x.type.dtype) for kind in ("greater", "less")]
    return b.emit("sub", *signs)


def _xor(call: Call) -> Value:
    """(a or b) and not (a and b)"""
    b, (x, y) = call.builder, call.values()
    return b.emit("and", b.emit("or", x, y), b.emit("not", b.emit("and", x, y)))


def _is_nan(call: Call) -> Value:
    """x != x"""
    b, x = call.builder, call.value(0)
    return b.emit("not", b.emit("equal", x, x))


def _cast(call: Call) -> Value:
    return call.builder.cast(call.value(0), call.dtype_attribute("to", 1))


def _cast_like(call: Call) -> Value:
    return call.builder.cast(call.value(0), call.dtype(1))


def _where(call: Call) -> Value:
    return call.builder.emit("select", *call.values())


def _mean_of(call: Call) -> Value:
    b, total = call.builder, _variadic("add")(call)
    assert isinstance(total, Value)
    return b.emit("mul", total, b.number(1 / len(call.node.inputs), total))


def axes(call: Call, x: Value) -> tuple[int, ...]:
    """The axes input of a reduction; all if there is none. Empty and noop: none."""
    given = call.numbers(1) if call.has(1) else []
    if not given and call.flag("noop_with_empty_axes"):
        return ()
    return tuple(sorted({axis_of(axis, x.type.rank) for axis in given})) or tuple(range(x.type.rank))


Reduction = Callable[[Builder, Value, tuple[int, ...], bool], Value]


def _reduction(reduce: Reduction) -> Run:
    def run(call: Call) -> Value:
        x = call.value(0)
        over = axes(call, x)
        return reduce(call.builder, x, over, call.flag("keepdims", True)) if over else x

    return run


def _plain(kind: str) -> Reduction:
    return lambda b, x, over, keepdims: b.emit(kind, x, axes=over, keepdims=keepdims)


def _sum_square(b: Builder, x: Value, over: tuple[int, ...], keepdims: bool) -> Value:
    return b.emit("reduce_sum", b.emit("mul", x, x), axes=over, keepdims=keepdims)


def _l1(b: Builder, x: Value, over: tuple[int, ...], keepdims: bool) -> Value:
    return b.emit("reduce_sum", b.emit("abs", x), axes=over, keepdims=keepdims)


def _l2(b: Builder, x: Value, over: tuple[int, ...], keepdims: bool) -> Value:
    return b.emit("sqrt", _sum_square(b, x, over, keepdims))


def _log_sum_exp(b: Builder, x: Value, over: tuple[int, ...], keepdims: bool) -> Value:
    """m + log(sum(exp(x - m))) with m = max(x)"""
    most = b.emit("reduce_max", x, axes=over, keepdims=True)
    total = b.emit("reduce_sum", b.emit("exp", b.emit("sub", x, most)), axes=over, keepdims=True)
    whole = b.emit("add", most, b.emit("log", total))
    return whole if keepdims else b.emit("reduce_sum", whole, axes=over, keepdims=False)


def _prod(b: Builder, x: Value, over: tuple[int, ...], keepdims: bool) -> Value:
    raise RefusalError("a product of data")


def _argmax(call: Call) -> Value:
    return _place(call, call.value(0))


def _argmin(call: Call) -> Value:
    """argmax(-x)"""
    if call.dtype(0) not in FLOATS:
        raise RefusalError("the least of integers, where -x may overflow")
    return _place(call, call.builder.emit("neg", call.value(0)))


def _place(call: Call, x: Value) -> Value:
    """Where the greatest is."""
    if call.flag("select_last_index"):
        raise RefusalError("attribute select_last_index = 1; 0 is supported")
    b = call.builder
    axis = axis_of(call.int("axis", 0), x.type.rank)
    found = b.emit("argmax", x, axis=axis)
    sizes = call.shape(0)
    return b.reshape(found, [*sizes[:axis], 1, *sizes[axis + 1 :]]) if call.flag("keepdims", True) else found


def _cumsum(call: Call) -> Value:
    if call.flag("exclusive") or call.flag("reverse"):
        raise RefusalError("exclusive or reverse sums")
    axis = call.numbers(1)
    if len(axis) != 1:
        raise RefusalError(f"sums along {axis}")
    return call.builder.emit("cumsum", call.value(0), axis=axis[0])


def _softmax(call: Call) -> Value:
    return _flattened(call, lambda b, x, axis: b.emit("softmax", x, axis=axis))


def _log_softmax(call: Call) -> Value:
    return _flattened(call, _log_of_softmax)


def _log_of_softmax(b: Builder, x: Value, axis: int) -> Value:
    """x - logsumexp(x)"""
    return b.emit("sub", x, _log_sum_exp(b, x, (axis,), True))


def _flattened(call: Call, apply: Callable[[Builder, Value, int], Value]) -> Value:
    """Before version 13 all dimensions from the axis on are one; normalise.py says so with flatten = 1."""
    b, x, sizes = call.builder, call.value(0), call.shape(0)
    axis = axis_of(call.int("axis", -1), x.type.rank)
    if not call.flag("flatten") or axis == x.type.rank - 1:
        return apply(b, x, axis)
    rows = b.reshape(x, [product(sizes[:axis]), product(sizes[axis:])])
    return b.reshape(apply(b, rows, 1), sizes)


_MANY = (1, np.inf)
_REDUCE = ((1, 2), "keepdims", "noop_with_empty_axes")

RULES: dict[str, Rule] = {
    **{
        name: rule(_unary(kind), 1)
        for name, kind in (
            ("Abs", "abs"), ("Cos", "cos"), ("Erf", "erf"), ("Exp", "exp"), ("Floor", "floor"), ("Log", "log"),
            ("Neg", "neg"), ("Not", "not"), ("Reciprocal", "reciprocal"), ("Relu", "relu"), ("Sigmoid", "sigmoid"),
            ("Sin", "sin"), ("Sqrt", "sqrt"), ("Tanh", "tanh"),
        )
    },
    **{
        name: rule(_binary(kind), 2)
        for name, kind in (
            ("Add", "add"), ("Sub", "sub"), ("And", "and"), ("Or", "or"), ("Equal", "equal"), ("Less", "less"),
            ("LessOrEqual", "less_equal"), ("Greater", "greater"), ("GreaterOrEqual", "greater_equal"),
        )
    },
    "Mul": rule(_mul, 2),
    "Div": rule(_div, 2),
    "Pow": rule(_pow, 2),
    "Sum": rule(_variadic("add"), _MANY),
    "Max": rule(_variadic("maximum"), _MANY),
    "Min": rule(_variadic("minimum"), _MANY),
    "Mean": rule(_mean_of, _MANY),
    "Ceil": rule(_ceil, 1),
    "Clip": rule(_clip, (1, 3)),
    "Sign": rule(_sign, 1),
    "Xor": rule(_xor, 2),
    "IsNaN": rule(_is_nan, 1),
    "Cast": rule(_cast, 1, "to", "saturate", "round_mode"),
    "CastLike": rule(_cast_like, 2, "saturate", "round_mode"),
    "Where": rule(_where, 3),
    "ReduceSum": rule(_reduction(_plain("reduce_sum")), *_REDUCE),
    "ReduceMean": rule(_reduction(_plain("reduce_mean")), *_REDUCE),
    "ReduceMax": rule(_reduction(_plain("reduce_max")), *_REDUCE),
    "ReduceMin": rule(_reduction(_plain("reduce_min")), *_REDUCE),
    "ReduceL1": rule(_reduction(_l1), *_REDUCE),
    "ReduceL2": rule(_reduction(_l2), *_REDUCE),
    "ReduceSumSquare": rule(_reduction(_sum_square), *_REDUCE),
    "ReduceLogSumExp": rule(_reduction(_log_sum_exp), *_REDUCE),
    "ReduceProd": rule(_reduction(_prod), *_REDUCE),
    "ArgMax": rule(_argmax, 1, "axis", "keepdims", "select_last_index"),
    "ArgMin": rule(_argmin, 1, "axis", "keepdims", "select_last_index"),
    "CumSum": rule(_cumsum, 2, "exclusive", "reverse"),
    "Softmax": rule(_softmax, 1, "axis", "flatten"),
    "LogSoftmax": rule(_log_softmax, 1, "axis", "flatten"),
}  # fmt: skip
