"""What the tensor operations mean (dialect/semantics.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.ir.core import Operation
from unsay.compiler.ir.types import DTYPES, TensorType
from unsay.isa.formats import DType

Meaning: TypeAlias = Callable[[Domain, Operation, Sequence[Array]], tuple[Array, ...]]
"""The results of an operation from the domain, the operation itself and its operands."""

_Function: TypeAlias = Callable[[Domain, Array], Array]


def sigmoid(d: Domain, x: Array) -> Array:
    """1 / (1 + exp(-x))"""
    return d.div(1.0, d.add(1.0, d.apply("exp", _neg(d, x))))


def silu(d: Domain, x: Array) -> Array:
    """x / (1 + exp(-x))"""
    return d.div(x, d.add(1.0, d.apply("exp", _neg(d, x))))


def softmax(d: Domain, x: Array, axis: int) -> Array:
    """e / sum(e), e = exp(x - max(x))"""
    e = d.apply("exp", d.sub(x, d.extreme("greater", x, (axis,))))
    return d.div(e, d.sum(e, (axis,)))


def _neg(d: Domain, x: Array) -> Array:
    return d.sub(0.0, x)


def _gelu_erf(d: Domain, x: Array) -> Array:
    return d.mul(d.mul(x, 0.5), d.add(1.0, d.apply("erf", d.mul(x, 1 / math.sqrt(2)))))


def _gelu_tanh(d: Domain, x: Array) -> Array:
    cube = d.mul(d.mul(x, x), x)
    inner = d.mul(math.sqrt(2 / math.pi), d.add(x, d.mul(0.044715, cube)))
    return d.mul(d.mul(x, 0.5), d.add(1.0, d.apply("tanh", inner)))


def _abs(d: Domain, x: Array) -> Array:
    return d.maximum(x, _neg(d, x))


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


def mean(d: Domain, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
    """sum(x) / count"""
    return d.div(d.sum(x, axes, keepdims=keepdims), float(math.prod(x.shape[axis] for axis in axes)))


def _extreme(relation: str) -> Meaning:
    def meaning(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
        return (d.extreme(relation, operands[0], _axes(op, operands[0]), keepdims=op.flag("keepdims")),)

    return meaning


def _axes(op: Operation, x: Array) -> tuple[int, ...]:
    return tuple(sorted(axis % x.ndim for axis in op.integers("axes")))


def _constant(d: Domain, op: Operation, _operands: Sequence[Array]) -> tuple[Array, ...]:
    value = np.asarray(op.attributes["value"])
    shape = _shape(op.result.type)
    array = np.full(shape, value[0]) if value.size == 1 else value.reshape(shape)
    return (d.enter(array, op.result.type.dtype),)


def _iota(d: Domain, op: Operation, _operands: Sequence[Array]) -> tuple[Array, ...]:
    shape = _shape(op.result.type)
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
    return (operands[0].reshape(_shape(op.result.type)),)


def _broadcast_to(_d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (np.broadcast_to(operands[0], _shape(op.result.type)),)


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


def _softmax(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (softmax(d, operands[0], op.integer("axis") % operands[0].ndim),)


def _cumsum(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.cumsum(operands[0], op.integer("axis")),)


def _matmul(d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.matmul(*operands),)


def _pad(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    pads, rank = op.integers("pads"), operands[0].ndim
    return (bordered(d, operands[0], pads[:rank], pads[rank:], op.number("value")),)


def bordered(d: Domain, x: Array, before: Sequence[int], after: Sequence[int], value: float) -> Array:
    """x with a border of a value."""
    shape = [low + extent + high for low, extent, high in zip(before, x.shape, after, strict=True)]
    whole = d.full(shape, value, x)
    whole[tuple(slice(low, low + extent) for low, extent in zip(before, x.shape, strict=True))] = x
    return whole


def _windows(d: Domain, op: Operation, x: Array, kernel: Sequence[int], border: float) -> list[tuple[int, int, Array]]:
    """(i, j, what the kernel's element i, j sees: [N, C, H', W']) for every element of a kernel that slides over x."""
    top, left, bottom, right = op.integers("pads")
    strides = op.integers("strides")
    dilations = op.integers("dilations") if "dilations" in op.attributes else (1, 1)
    whole = bordered(d, x, (0, 0, top, left), (0, 0, bottom, right), border)
    height, width = _shape(op.result.type)[2:]

    def seen(start: int, side: int, count: int) -> slice:
        first = start * dilations[side]
        return slice(first, first + (count - 1) * strides[side] + 1, strides[side])

    return [
        (i, j, whole[:, :, seen(i, 0, height), seen(j, 1, width)]) for i in range(kernel[0]) for j in range(kernel[1])
    ]


def _conv2d(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    x, w, *biases = operands
    groups = op.integer("groups")
    parts = [_conv_group(d, op, *part) for part in zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True)]
    y = np.concatenate(parts, 1)
    for bias in biases:
        y = d.add(y, bias.reshape(1, -1, 1, 1))
    return (y,)


def _conv_group(d: Domain, op: Operation, x: Array, w: Array) -> Array:
    """The sum of one product of matrices for each element of the kernel."""
    height, width = _shape(op.result.type)[2:]
    total: Array | None = None
    for i, j, seen in _windows(d, op, x, w.shape[2:], 0.0):
        product = d.matmul(w[:, :, i, j], seen.reshape(*x.shape[:2], height * width))
        total = product if total is None else d.add(total, product)
    assert total is not None
    return total.reshape(x.shape[0], w.shape[0], height, width)


def _max_pool2d(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    windows = _windows(d, op, operands[0], op.integers("kernel"), -math.inf)
    total = windows[0][2]
    for _, _, seen in windows[1:]:
        total = d.maximum(total, seen)
    return (total,)


def _average_pool2d(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    kernel = op.integers("kernel")
    total, count = (_window_sum(d, op, x, kernel) for x in (operands[0], d.full(operands[0].shape, 1.0, operands[0])))
    return (d.div(total, count),)


def _window_sum(d: Domain, op: Operation, x: Array, kernel: Sequence[int]) -> Array:
    windows = _windows(d, op, x, kernel, 0.0)
    total = windows[0][2]
    for _, _, seen in windows[1:]:
        total = d.add(total, seen)
    return total


def _batch_norm(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    x, *vectors = operands
    scale, bias, center, var = (vector.reshape(1, -1, *(1 for _ in x.shape[2:])) for vector in vectors)
    unit = d.div(d.sub(x, center), d.apply("sqrt", d.add(var, op.number("eps"))))
    return (d.add(d.mul(unit, scale), bias),)


def _sdpa(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    q, k, v, *masks = operands
    scores = d.mul(d.matmul(q, k.swapaxes(-1, -2)), op.number("scale"))
    if not masks:
        return (attend(d, scores, v),)
    if op.operands[3].type.dtype is DType.BOOL:
        return (attend(d, scores, v, np.broadcast_to(masks[0], scores.shape)),)
    return (attend(d, d.add(scores, masks[0]), v),)


def attend(d: Domain, scores: Array, v: Array, kept: Array | None = None) -> Array:
    """softmax(scores) v, over the scores that are kept; a row in which none is, is 0."""
    scores = scores if kept is None else d.select(kept, scores, -math.inf)
    most = d.extreme("greater", scores, (scores.ndim - 1,))
    most = d.select(d.compare("equal", most, -math.inf), 0.0, most)
    e = d.apply("exp", d.sub(scores, most))
    e = e if kept is None else d.select(kept, e, 0.0)
    total = d.sum(e, (e.ndim - 1,))
    return d.div(d.matmul(e, v), d.select(d.compare("equal", total, 0.0), 1.0, total))


def _same(_d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (operands[0],)


def _shape(tensor_type: TensorType) -> tuple[int, ...]:
    for extent in tensor_type.dims:
        assert isinstance(extent, int), f"{tensor_type} is not of fixed size: see ir/specialise.py"
    return tensor_type.dims  # pyright: ignore[reportReturnType]


TENSOR_SEMANTICS: dict[str, Meaning] = {
    "constant": _constant,
    "iota": _iota,
    "output": lambda _d, _op, _operands: (),
    "neg": _unary(_neg),
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
    "matmul": _matmul,
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
    "softmax": _softmax,
    "cumsum": _cumsum,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "average_pool2d": _average_pool2d,
    "batch_norm": _batch_norm,
    "pad": _pad,
    "sdpa": _sdpa,
    "reorder": _same,
    "transfer": _same,
}
