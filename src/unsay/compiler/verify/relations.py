"""What must hold between the sizes of an operation's operands and results: T0 (shapes.py), a row for each operation.

Written from what operations do, and not from their shape rules, which it is to find mistakes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from math import prod
from typing import Any, TypeAlias

from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.core import Operation
from unsay.compiler.ir.dims import Extent
from unsay.compiler.verify.smt import z3
from unsay.isa.formats import QUANT_BLOCK

Size: TypeAlias = Any
"""An integer, or a Z3 integer for a dimension."""

Claims: TypeAlias = Iterator[Any]
"""Bools, or Z3 formulas over sizes."""


def size_of(extent: Extent) -> Size:
    """The number, or the Z3 integer of the dimension's name."""
    return extent if isinstance(extent, int) else z3.Int(extent.name)


def _sizes(operation: Operation) -> tuple[list[list[Size]], list[list[Size]]]:
    """Sizes of the operands and of the results."""
    operands = [[*map(size_of, value.type.dims)] for value in operation.operands]
    return operands, [[*map(size_of, value.type.dims)] for value in operation.results]


def _same(*shapes: Sequence[Size]) -> Claims:
    """All shapes are one."""
    for shape in shapes[1:]:
        yield len(shape) == len(shapes[0])
        yield from (a == b for a, b in zip(shape, shapes[0], strict=False))


def _fits(shape: Sequence[Size], result: Sequence[Size]) -> Claims:
    """The shape can be repeated to the result."""
    yield len(shape) <= len(result)
    for a, r in zip(reversed(shape), reversed(result), strict=False):
        yield True if _is_one(a) else a == r


def _is_one(size: Size) -> bool:
    return isinstance(size, int) and size == 1


def _elementwise(operation: Operation) -> Claims:
    """The result is the least shape that all operands can be repeated to."""
    operands, (result,) = _sizes(operation)
    for shape in operands:
        yield from _fits(shape, result)
    for place, extents in enumerate(zip_longest(*map(reversed, operands), fillvalue=1), 1):
        yield not all(map(_is_one, extents)) or result[-place] == 1
    yield len(result) == max(map(len, operands))


def _unchanged(operation: Operation) -> Claims:
    operands, results = _sizes(operation)
    yield from _same(operands[0], *results)


def _from_outside(operation: Operation) -> Claims:
    _, (result,) = _sizes(operation)
    yield from (extent >= 0 for extent in result)


def _matmul(operation: Operation) -> Claims:
    (a, b, *biases), (result,) = _sizes(operation)
    yield a[-1] == b[-2]
    yield from _same([a[-2], b[-1]], result[-2:])
    yield from _fits(a[:-2], result[:-2])
    yield from _fits(b[:-2], result[:-2])
    for bias in biases:
        yield from _same(bias, result[-1:])


def _transpose(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    perm = operation.integers("perm")
    yield sorted(perm) == list(range(len(x)))
    yield from _same([x[axis] for axis in perm], result)


def _reshape(operation: Operation) -> Claims:
    """As many elements, as polynomials in the dimensions."""
    yield formulas.free(operation.operands[0].type.dims) == formulas.free(operation.result.type.dims)


def _broadcast_to(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    yield from _fits(x, result)


def _concat(operation: Operation) -> Claims:
    operands, (result,) = _sizes(operation)
    axis = operation.integer("axis") % len(result)
    yield sum(shape[axis] for shape in operands) == result[axis]
    for shape in operands:
        yield from _same([*shape[:axis], *shape[axis + 1 :]], [*result[:axis], *result[axis + 1 :]])


def _slice(operation: Operation) -> Claims:
    """The first and the last element taken are elements of x."""
    (x,), (result,) = _sizes(operation)
    axis, step = operation.integer("axis") % len(x), operation.integer("step")
    extent, length = x[axis], result[axis]
    start, stop = (_clamped(operation.integer(name), extent) for name in ("start", "stop"))
    yield length >= 0
    yield start >= 0
    yield stop <= extent
    yield z3.Implies(length > 0, start + (length - 1) * step < stop)
    yield start + length * step >= stop
    yield from _same([*x[:axis], *x[axis + 1 :]], [*result[:axis], *result[axis + 1 :]])


def _clamped(place: int, extent: Size) -> Size:
    """A place as Python counts it: from the end if negative, at most the extent."""
    place = z3.IntVal(place) if place >= 0 else z3.IntVal(place) + extent
    return z3.If(place > extent, extent, z3.If(place < 0, 0, place))


def _gather(operation: Operation) -> Claims:
    (x, indices), (result,) = _sizes(operation)
    axis = operation.integer("axis") % len(x)
    yield from _same([*x[:axis], *indices, *x[axis + 1 :]], result)


def _reduce(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    axes = {axis % len(x) for axis in operation.integers("axes")}
    kept = [1 if axis in axes else extent for axis, extent in enumerate(x)]
    expected = kept if operation.flag("keepdims") else [kept[axis] for axis in range(len(x)) if axis not in axes]
    yield from _same(expected, result)


def _argmax(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    axis = operation.integer("axis") % len(x)
    yield from _same([*x[:axis], *x[axis + 1 :]], result)


def _window(operation: Operation, kernel: Sequence[Size]) -> Claims:
    """The last window that fits ends within the border, and one more would not."""
    x, result = _sizes(operation)[0][0], _sizes(operation)[1][0]
    top, left, bottom, right = operation.integers("pads")
    dilations = operation.integers("dilations") if "dilations" in operation.attributes else (1, 1)
    for side, pads in enumerate((top + bottom, left + right)):
        extent, length = x[2 + side] + pads, result[2 + side]
        reach, stride = dilations[side] * (kernel[side] - 1) + 1, operation.integers("strides")[side]
        yield length >= 1
        yield (length - 1) * stride + reach <= extent
        yield length * stride + reach > extent
    yield x[0] == result[0]


def _conv2d(operation: Operation) -> Claims:
    (x, w, *biases), (result,) = _sizes(operation)
    yield from _window(operation, w[2:])
    yield w[1] * operation.integer("groups") == x[1]
    yield w[0] % operation.integer("groups") == 0
    for channels in ([result[1]], *biases):
        yield from _same(channels, [w[0]])


def _pool2d(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    yield from _window(operation, operation.integers("kernel"))
    yield x[1] == result[1]


def _channels(operation: Operation) -> Claims:
    (x, *vectors), (result,) = _sizes(operation)
    yield from _same(x, result)
    for vector in vectors:
        yield from _same(vector, [x[1]])


def _pad(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    pads = operation.integers("pads")
    before, after = pads[: len(x)], pads[len(x) :]
    yield from _same([a + b + c for a, b, c in zip(before, x, after, strict=True)], result)


def _sdpa(operation: Operation) -> Claims:
    (q, k, v, *masks), (result,) = _sizes(operation)
    yield q[-1] == k[-1]
    yield k[-2] == v[-2]
    yield from _same([q[-2], v[-1]], result[-2:])
    for mask in masks:
        yield from _fits(mask[-2:], [q[-2], k[-2]])


def _product(x: Sequence[Size], w: Sequence[Size], result: Sequence[Size], *biases: Sequence[Size]) -> Claims:
    """x [.., K], w [N, K], bias [N] -> [.., N]"""
    yield from _same(x[-1:], w[1:])
    yield from _same([*x[:-1], w[0]], result)
    for bias in biases:
        yield from _same(bias, w[:1])


def _linear(operation: Operation) -> Claims:
    (x, w, *biases), (result,) = _sizes(operation)
    yield from _product(x, w, result, *biases)


def _linear_add(operation: Operation) -> Claims:
    (residual, x, w, *biases), (result,) = _sizes(operation)
    yield from _same(residual, result)
    yield from _product(x, w, result, *biases)


def _ffn(operation: Operation) -> Claims:
    (residual, x, gate, up, down), (result,) = _sizes(operation)
    hidden = [*x[:-1], gate[0]]
    yield from _same(residual, result)
    yield from _product(x, gate, hidden)
    yield from _product(x, up, hidden)
    yield from _product(hidden, down, result)
    yield operation.string("hidden") == "f32" or gate[0] % QUANT_BLOCK == 0


def _qkv(operation: Operation) -> Claims:
    (x, *rest), results = _sizes(operation)
    heads = [operation.integer(name) for name in ("num_heads", "num_kv_heads", "num_kv_heads")]
    for index, (w, result, count) in enumerate(zip(rest[:3], results, heads, strict=True)):
        yield from _product(x, w, result, *rest[3 + index : 4 + index])
        yield result[-1] == count * operation.integer("head_dim")


def _norm(operation: Operation) -> Claims:
    (x, *vectors), (result,) = _sizes(operation)
    yield from _same(x, result)
    for vector in vectors:
        yield from _same(vector, x[-1:])
    yield operation.string("output") == "f32" or x[-1] % QUANT_BLOCK == 0


def _add_rms_norm(operation: Operation) -> Claims:
    (a, b, gamma), results = _sizes(operation)
    yield from _same(a, b, *results)
    yield from _same(gamma, a[-1:])


def _embed(operation: Operation) -> Claims:
    (ids, w), (result,) = _sizes(operation)
    yield from _same([*ids, w[1]], result)


def _rope(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    yield from _same(x, result)
    yield x[-1] == operation.integer("num_heads") * operation.integer("head_dim")


def _attention(operation: Operation) -> Claims:
    (q, k, v), (result,) = _sizes(operation)
    head_dim = operation.integer("head_dim")
    yield from _same(q, result)
    yield from _same(k, v)
    yield q[0] == k[0]
    yield q[-1] == operation.integer("num_heads") * head_dim
    yield k[-1] == operation.integer("num_kv_heads") * head_dim


def _quantise(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    yield from _same(x, result)
    yield x[-1] % QUANT_BLOCK == 0


def _select_rows(operation: Operation) -> Claims:
    (x,), (result,) = _sizes(operation)
    yield from _same(x[1:], result[1:])


def _constant(operation: Operation) -> Claims:
    """One number for every element, or one for all."""
    value, shape = operation.attributes["value"], operation.result.type.dims
    assert isinstance(value, tuple), operation
    fixed = all(isinstance(extent, int) for extent in shape)
    yield len(value) == 1 or (fixed and len(value) == prod(map(size_of, shape)))


def _nothing(_operation: Operation) -> Claims:
    yield True


def _named(relation: Callable[[Operation], Claims], names: str) -> dict[str, Callable[[Operation], Claims]]:
    return dict.fromkeys(names.split(), relation)


RELATIONS: dict[str, Callable[[Operation], Claims]] = {
    **_named(_from_outside, "weight input tokens iota"),
    **_named(_nothing, "output size"),
    **_named(_elementwise, "add sub mul div pow maximum minimum equal less less_equal greater greater_equal and or"),
    **_named(_elementwise, "select silu_mul"),
    **_named(_unchanged, "neg abs exp log sqrt rsqrt reciprocal sin cos tanh erf sigmoid relu silu gelu floor not"),
    **_named(_unchanged, "cast softmax cumsum reorder transfer"),
    **_named(_matmul, "matmul matmul_silu"),
    **_named(_reduce, "reduce_sum reduce_mean reduce_max reduce_min"),
    **_named(_conv2d, "conv2d conv2d_relu"),
    **_named(_pool2d, "max_pool2d average_pool2d"),
    **_named(_norm, "rms_norm layer_norm"),
    "constant": _constant, "transpose": _transpose, "reshape": _reshape, "broadcast_to": _broadcast_to,
    "concat": _concat, "slice": _slice, "gather": _gather, "argmax": _argmax, "batch_norm": _channels, "pad": _pad,
    "sdpa": _sdpa, "linear": _linear, "linear_add": _linear_add, "ffn": _ffn, "qkv": _qkv, "embed": _embed,
    "rope": _rope, "attention": _attention, "quantise": _quantise, "select_rows": _select_rows,
    "add_rms_norm": _add_rms_norm,
}  # fmt: skip
"""A row for every operation of the table."""
