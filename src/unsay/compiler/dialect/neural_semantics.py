"""What products, convolutions, pools, norms and attention mean (dialect/semantics.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.meaning import Meaning, bordered, fixed_shape
from unsay.compiler.ir.core import Operation
from unsay.isa.formats import DType


def softmax(d: Domain, x: Array, axis: int) -> Array:
    """e / sum(e), e = exp(x - max(x))"""
    e = d.apply("exp", d.sub(x, d.extreme("greater", x, (axis,))))
    return d.div(e, d.sum(e, (axis,)))


def _softmax(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (softmax(d, operands[0], op.integer("axis") % operands[0].ndim),)


def _matmul(d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    return (d.matmul(*operands),)


def _windows(d: Domain, op: Operation, x: Array, kernel: Sequence[int], border: float) -> list[tuple[int, int, Array]]:
    """(i, j, what the kernel's element i, j sees: [N, C, H', W']) for every element of a kernel that slides over x."""
    top, left, bottom, right = op.integers("pads")
    strides = op.integers("strides")
    dilations = op.integers("dilations") if "dilations" in op.attributes else (1, 1)
    whole = bordered(d, x, (0, 0, top, left), (0, 0, bottom, right), border)
    height, width = fixed_shape(op.result.type)[2:]

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
    height, width = fixed_shape(op.result.type)[2:]
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


NEURAL_SEMANTICS: dict[str, Meaning] = {
    "matmul": _matmul,
    "softmax": _softmax,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "average_pool2d": _average_pool2d,
    "batch_norm": _batch_norm,
    "sdpa": _sdpa,
}
