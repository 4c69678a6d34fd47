"""What the tensor operations mean (dialect/semantics.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.meaning import Meaning, bordered, fixed_shape, mean, negated, sigmoid, silu
from unsay.compiler.dialect.neural_semantics import NEURAL_SEMANTICS
from unsay.compiler.ir.core import Operation
from unsay.compiler.ir.types import DTYPES

_Function: TypeAlias = Callable[[Domain, Array], Array]


def _gelu_erf(d: Domain, x: Array) -> Array:
    return d.mul(d.mul(x, 0.5), d.add(1.0, d.apply("erf", d.mul(x, 1 / math.sqrt(2)))))


def _gelu_tanh(d: Domain, x: Array) -> Array:
    cube = d.mul(d.mul(x, x), x)
    inner = d.mul(math.sqrt(2 / math.pi), d.add(x, d.mul(0.044715, cube)))
    return d.mul(d.mul(x, 0.5), d.add(1.0, d.apply("tanh", inner)))


def _abs(d: Domain, x: Array) -> Array:
    return d.maximum(x, negated(d, x))


def _named(function: str) -> Meaning:
    return lambda d, _op, operands: (d.apply(function, operands[0]),)


def _unary(function: _Function) -> Meaning:
    return lambda d, _op, operands: (function(d, operands[0]),)


def _binary(name: str) -> Meaning:
    return lambda d, _op, operands: (getattr(d, name)(*operands),)


def _compare(relation: str) -> Meaning:
    return lambda d, _op, operands: (d.compare(relation, *operands),)


def _gelu(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    function = _gelu_erf if op.string("approximate") == "none" else _gelu_tanh
    return (function(d, operands[0]),)


def _sum(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.sum(operands[0], _axes(op, operands[0]), keepdims=op.flag("keepdims")),)


def _mean(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    axes = _axes(op, operands[0])
    return (mean(d, operands[0], axes, keepdims=op.flag("keepdims")),)


def _extreme(relation: str) -> Meaning:
    def meaning(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (d.extreme(relation, operands[0], _axes(op, operands[0]), keepdims=op.flag("keepdims")),)

    return meaning


def _axes(op: Operation, x: Array) -> tuple[int, ...]:
    return tuple(sorted(axis % x.ndim for axis in op.integers("axes")))


def _constant(d: Domain, op: Operation, _operands: Sequence[Array]) -> tuple[Array, ...]:
    value = np.asarray(op.attributes["value"])
    shape = fixed_shape(op.result.type)
    array = np.full(shape, value[0]) if value.size == 1 else value.reshape(shape)
    return (d.enter(array, op.result.type.dtype),)


def _iota(d: Domain, op: Operation, _operands: Sequence[Array]) -> tuple[Array, ...]:
    shape = fixed_shape(op.result.type)
    axis = op.integer("axis") % len(shape)
    along = np.arange(shape[axis]).reshape([-1 if index == axis else 1 for index in range(len(shape))])
    return (d.enter(np.broadcast_to(along, shape), op.result.type.dtype),)


def _cast(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.cast(operands[0], DTYPES[op.string("dtype")]),)


def _select(d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.select(*operands),)


def _transpose(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (operands[0].transpose(op.integers("perm")),)


def _reshape(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (operands[0].reshape(fixed_shape(op.result.type)),)


def _broadcast_to(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (np.broadcast_to(operands[0], fixed_shape(op.result.type)),)


def _concat(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (np.concatenate(operands, op.integer("axis")),)


def _slice(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    (x,) = operands
    index = [slice(None)] * x.ndim
    index[op.integer("axis")] = slice(op.integer("start"), op.integer("stop"), op.integer("step"))
    return (x[tuple(index)],)


def _gather(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    x, indices = operands
    return (np.take(x, indices, op.integer("axis")),)


def _argmax(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.argmax(operands[0], op.integer("axis")),)


def _cumsum(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.cumsum(operands[0], op.integer("axis")),)


def _pad(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    pads, rank = op.integers("pads"), operands[0].ndim
    return (bordered(d, operands[0], pads[:rank], pads[rank:], op.number("value")),)


def _same(_d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (operands[0],)


TENSOR_SEMANTICS: dict[str, Meaning] = {
    "constant": _constant,
    "iota": _iota,
    "output": lambda _d, _op, _operands: (),
    "neg": _unary(negated),
    "abs": _unary(_abs),
    **{name: _named(name) for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "erf", "floor")},
    "rsqrt": _unary(lambda d, x: d.div(1.0, d.apply("sqrt", x))),
    "reciprocal": _unary(lambda d, x: d.div(1.0, x)),
    "sigmoid": _unary(sigmoid),
    "relu": _unary(lambda d, x: d.maximum(x, 0.0)),
    "silu": _unary(silu),
    "gelu": _gelu,
    "not": _unary(lambda d, x: d.logical("not", x)),
    "and": lambda d, _op, operands: (d.logical("and", *operands),),
    "or": lambda d, _op, operands: (d.logical("or", *operands),),
    "cast": _cast,
    **{name: _binary(name) for name in ("add", "sub", "mul", "div", "pow", "maximum", "minimum")},
    **{name: _compare(name) for name in ("equal", "less", "less_equal", "greater", "greater_equal")},
    "select": _select,
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast_to": _broadcast_to,
    "concat": _concat,
    "slice": _slice,
    "gather": _gather,
    "reduce_sum": _sum,
    "reduce_mean": _mean,
    "reduce_max": _extreme("greater"),
    "reduce_min": _extreme("less"),
    "argmax": _argmax,
    "cumsum": _cumsum,
    "pad": _pad,
    "reorder": _same,
    "transfer": _same,
    **NEURAL_SEMANTICS,
}
