"""Shape rules of the tensor operations, as in NumPy: an extent is a number or a dimension of the graph.

Called as those of shapes.py. Two extents are the same when they are for all sizes (ir/dims.py); an extent that an
operation computes, such as P + T of a concat, must be a number or a dimension that the graph declares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

from unsay.compiler.dialect import shapes as step_shapes
from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.dims import Dim, Extent, extent_of, same
from unsay.compiler.ir.types import DTYPES, FLOATS, INTEGERS, ROW, TensorType, dtype_name, fits_layout, is_layout
from unsay.errors import IrError
from unsay.isa.formats import DType

Types: TypeAlias = Sequence[TensorType]
Attributes: TypeAlias = Mapping[str, Any]
Dims: TypeAlias = Mapping[str, Dim]
Result: TypeAlias = tuple[TensorType, ...]

_NUMBERS = FLOATS | INTEGERS
_ANY = _NUMBERS | {DType.BOOL}


def unary(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """floats -> the same"""
    (x,) = types
    _of(x, FLOATS, "x")
    return (x,)


def signed(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """numbers -> the same"""
    (x,) = types
    _of(x, _NUMBERS, "x")
    return (x,)


def logical_not(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """bool -> the same"""
    (x,) = types
    _of(x, {DType.BOOL}, "x")
    return (x,)


def cast(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """any -> the same shape of `dtype`"""
    (x,) = types
    _of(x, _ANY, "x")
    return (x.of(DTYPES[attributes["dtype"]]),)


def arithmetic(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """numbers of one element type, shapes that broadcast -> the common shape"""
    _of(types[0], _NUMBERS, "operands")
    return (_broadcast(types),)


def real_arithmetic(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """floats of one element type, shapes that broadcast -> the common shape"""
    _of(types[0], FLOATS, "operands")
    return (_broadcast(types),)


def comparison(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """operands of one element type, shapes that broadcast -> bool of the common shape"""
    _of(types[0], _ANY, "operands")
    return (_broadcast(types).of(DType.BOOL),)


def logical(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """bools, shapes that broadcast -> bool"""
    _of(types[0], {DType.BOOL}, "operands")
    return (_broadcast(types),)


def select(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """condition bool, a and b of one element type, shapes that broadcast -> the common shape"""
    condition, a, b = types
    _of(condition, {DType.BOOL}, "condition")
    _of(a, _ANY, "a")
    _need(a.dtype == b.dtype, "a and b must be of one element type, got {} and {}", a, b)
    return (_broadcast((a, b, condition.of(a.dtype))),)


def matmul(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """a [.., M, K], b [.., K, N] of one element type, leading shapes that broadcast -> [.., M, N]"""
    a, b = types
    _of(a, _NUMBERS, "a")
    _need(a.dtype == b.dtype, "a and b must be of one element type, got {} and {}", a, b)
    _need(a.rank >= 2 and b.rank >= 2, "a and b must be matrices or batches of them, got {} and {}", a, b)
    _need(same(a.dims[-1], b.dims[-2]), "a must have as many columns as b has rows, got {} and {}", a, b)
    batch = _common([a.dims[:-2], b.dims[:-2]])
    return (replace(_together(types), dims=(*batch, a.dims[-2], b.dims[-1])),)


def matmul_bias(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """as matmul of floats; bias [N] of the same element type"""
    (y,) = matmul(types[:2], attributes, dims)
    _of(y, FLOATS, "a")
    for bias in types[2:]:
        fits = bias.rank == 1 and same(bias.dims[0], y.dims[-1]) and bias.dtype == y.dtype
        _need(fits, "bias must be [{}] like a, got {}", _name(y.dims[-1]), bias)
    return (replace(y, device=_device(types).device),)


def transpose(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x, perm: dimension i of the result is dimension perm[i] of x"""
    (x,) = types
    perm: tuple[int, ...] = attributes["perm"]
    _need(sorted(perm) == list(range(x.rank)), "perm must order 0..{}, got {}", x.rank - 1, list(perm))
    _row(x)
    return (replace(x, dims=tuple(x.dims[axis] for axis in perm)),)


def reshape(types: Types, _attributes: Attributes, declared: Types) -> None:
    """any shape of as many elements, for all sizes"""
    (x,), (y,) = types, declared
    _row(x)
    _need(y == replace(x, dims=y.dims), "only the shape may change, from {} to {}", x, y)
    given, wanted = formulas.free(x.dims), formulas.free(y.dims)
    _need(given == wanted, "{} has {} elements, {} has {}", x, given, y, wanted)


def broadcast_to(types: Types, _attributes: Attributes, declared: Types) -> None:
    """a shape that x broadcasts to"""
    (x,), (y,) = types, declared
    _need(y == replace(x, dims=y.dims), "only the shape may change, from {} to {}", x, y)
    fits = x.rank <= y.rank and all(a == 1 or same(a, b) for a, b in zip(x.dims[::-1], y.dims[::-1], strict=False))
    _need(fits, "{} does not broadcast to {}", x, y)


def concat(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """tensors alike but for `axis` -> their sum there"""
    first = _together(types)
    axis = axis_of(attributes["axis"], first.rank)
    total = formulas.number(0)
    for other in types:
        alike = other.rank == first.rank and all(
            same(a, b) for index, (a, b) in enumerate(zip(first.dims, other.dims, strict=True)) if index != axis
        )
        _need(alike and other.dtype == first.dtype, "operands must be alike but for axis {}, got {}", axis, other)
        total += formulas.of(other.dims[axis])
    return (_put(first, axis, extent_of(total, dims)),)


def slice_(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x, axis: elements start, start + step, ... before stop; negative ones count from the end, as in Python"""
    (x,) = types
    axis = axis_of(attributes["axis"], x.rank)
    extent = x.dims[axis]
    start, stop, step = attributes["start"], attributes["stop"], attributes["step"]
    if isinstance(extent, int):
        length = len(range(*slice(start, stop, step).indices(extent)))
        _need(length > 0, "nothing of {} is between {} and {}", x, start, stop)
        return (_put(x, axis, length),)
    _need(step == 1, "a dimension without a fixed size is cut in steps of 1, got {}", step)
    low, high = (_bound(value, extent) for value in (start, stop))
    return (_put(x, axis, extent_of(high + formulas.number(-1) * low, dims)),)


def _bound(value: int, extent: Dim) -> formulas.Formula:
    """Where a slice begins or ends; it must be inside for every size the dimension can have."""
    if value >= extent.high:
        return formulas.of(extent)
    inside = -extent.low <= value <= extent.low
    _need(inside, "{} is not inside {} at all its sizes {}..{}", value, extent.name, extent.low, extent.high)
    return formulas.number(value) + (formulas.of(extent) if value < 0 else formulas.number(0))


def gather(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x, indices i32 or i64 -> x with `axis` replaced by the shape of the indices"""
    x, indices = types
    _of(indices, {DType.I32, DType.I64}, "indices")
    axis = axis_of(attributes["axis"], x.rank)
    _row(x)
    return (replace(x, dims=(*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])),)


def reduction(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x numbers -> without `axes`, or with 1 in their place if keepdims"""
    (x,) = types
    _of(x, _NUMBERS, "x")
    axes = axes_of(attributes["axes"], x.rank)
    if attributes["keepdims"]:
        return (replace(x, dims=tuple(1 if index in axes else extent for index, extent in enumerate(x.dims))),)
    return (_without(x, axes),)


def mean(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """floats, as reduction"""
    _of(types[0], FLOATS, "x")
    return reduction(types, attributes, dims)


def argmax(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x numbers -> i64 without `axis`: the first index of the greatest"""
    (x,) = types
    _of(x, _NUMBERS, "x")
    return (_without(x, {axis_of(attributes["axis"], x.rank)}).of(DType.I64),)


def along_axis(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x floats, axis -> the same"""
    (x,) = types
    _of(x, FLOATS, "x")
    axis_of(attributes["axis"], x.rank)
    return (x,)


def cumsum(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x numbers, axis -> the same"""
    (x,) = types
    _of(x, _NUMBERS, "x")
    axis_of(attributes["axis"], x.rank)
    return (x,)


def conv2d(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x [N, C, H, W], w [O, C/groups, KH, KW], bias [O] floats -> [N, O, H', W']"""
    x, w, *biases = types
    _picture(x)
    _need(w.rank == 4 and w.dtype == x.dtype, "w must be [O, C, KH, KW] of the element type of x, got {}", w)
    outputs, channels, *kernel = w.dims
    groups = attributes["groups"]
    fits = all(isinstance(size, int) for size in (outputs, channels, x.dims[1]))
    fits = fits and outputs % groups == 0 and x.dims[1] == channels * groups  # pyright: ignore[reportOperatorIssue]
    _need(fits, "{} groups of w {} do not fit the channels of x {}", groups, w, x)
    for bias in biases:
        _need(bias.dims == (outputs,) and bias.dtype == x.dtype, "bias must be [{}] like x, got {}", outputs, bias)
    extents = _windows(x, tuple(kernel), attributes["strides"], attributes["pads"], attributes["dilations"], dims)
    return (replace(_device(types), dims=(x.dims[0], outputs, *extents)),)


def pool2d(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x [N, C, H, W] floats -> [N, C, H', W']"""
    (x,) = types
    _picture(x)
    kernel, pads = attributes["kernel"], attributes["pads"]
    _need(len(kernel) == 2 and min(kernel) > 0, "kernel must be two sizes, got {}", list(kernel))
    smaller = all(pad < size for pad, size in zip(pads, (*kernel, *kernel), strict=False))
    _need(smaller, "pads must be less than the kernel {}, got {}", list(kernel), list(pads))
    extents = _windows(x, kernel, attributes["strides"], pads, (1, 1), dims)
    return (replace(x, dims=(*x.dims[:2], *extents)),)


def batch_norm(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """x [N, C, ..] floats, scale, bias, mean, var [C] -> the same as x"""
    x, *vectors = types
    _of(x, FLOATS, "x")
    _need(x.rank >= 2, "x must have channels, got {}", x)
    for vector in vectors:
        fits = vector.rank == 1 and same(vector.dims[0], x.dims[1]) and vector.dtype == x.dtype
        _need(fits, "scale, bias, mean and var must be [{}] like x, got {}", _name(x.dims[1]), vector)
    return (_device(types),)


def add_rms_norm(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """a, b [.., E] f32 of one type, gamma [E] f32 -> the same, and the same in f32 or q8w"""
    a, b, gamma = types
    _need(a == b, "a and b must be of one type, got {} and {}", a, b)
    return (a, *step_shapes.rms_norm((a, gamma), attributes, dims))


def pad(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x, pads (before each dimension, then after each), value -> x with a border of value"""
    (x,) = types
    pads = attributes["pads"]
    _of(x, _NUMBERS, "x")
    _need(len(pads) == 2 * x.rank and min(pads, default=0) >= 0, "pads must be {} sizes, got {}", 2 * x.rank, pads)
    borders = (formulas.number(pads[axis] + pads[axis + x.rank]) for axis in range(x.rank))
    extents = (extent_of(formulas.of(extent) + border, dims) for extent, border in zip(x.dims, borders, strict=True))
    return (replace(x, dims=tuple(extents)),)


def sdpa(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """q [.., M, D], k [.., N, D], v [.., N, E] floats, mask (bool or like q) broadcasts to [.., M, N] -> [.., M, E]"""
    q, k, v, *masks = types
    _of(q, FLOATS, "q")
    _need(q.rank == k.rank == v.rank >= 2, "q, k, v must be of one rank, got {}, {}, {}", q, k, v)
    _need(q.dtype == k.dtype == v.dtype, "q, k, v must be of one element type, got {}, {}, {}", q, k, v)
    _need(same(q.dims[-1], k.dims[-1]), "q and k must be as wide, got {} and {}", q, k)
    _need(same(k.dims[-2], v.dims[-2]), "k and v must have as many rows, got {} and {}", k, v)
    batch = _common([q.dims[:-2], k.dims[:-2], v.dims[:-2]])
    scores = replace(q, dims=(*batch, q.dims[-2], k.dims[-2]))
    for mask in masks:
        _need(mask.dtype in (DType.BOOL, q.dtype), "the mask must be bool or like q, got {}", mask)
        broadcast_to((mask,), {}, (replace(scores, dtype=mask.dtype, layout=mask.layout, device=mask.device),))
    return (replace(_device(types), dims=(*batch, q.dims[-2], v.dims[-1])),)


def reorder(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x -> the same values in `layout`"""
    (x,) = types
    layout = attributes["layout"]
    _need(is_layout(layout), "layout {!r} is not known", layout)
    y = replace(x, layout=layout)
    _need(fits_layout(y), "layout {} does not fit {}", layout, x)
    return (y,)


def transfer(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x -> the same on `device`"""
    return (replace(types[0], device=attributes["device"]),)


def size(_types: Types, attributes: Attributes, dims: Dims) -> Result:
    """i64 scalar"""
    _need(attributes["dim"] in dims, "the graph has no dimension {}, it has {}", attributes["dim"], ", ".join(dims))
    return (TensorType((), DType.I64),)


def constant(_types: Types, attributes: Attributes, declared: Types) -> None:
    """as many values as elements, or one for all; floats, ints, or 0 and 1 for bool"""
    (y,), value = declared, attributes["value"]
    _of(y, _ANY, "a constant")
    fixed = [extent for extent in y.dims if isinstance(extent, int)]
    whole = len(fixed) == y.rank and len(value) == prod(fixed)
    _need(len(value) == 1 or whole, "{} needs one value or one for each element, got {}", y, len(value))
    kind = float if y.dtype in FLOATS else int
    _need(all(type(item) is kind for item in value), "{} needs values of {}, got {!r}", y, kind.__name__, value[:4])
    _need(y.dtype is not DType.BOOL or set(value) <= {0, 1}, "{} needs values of 0 and 1, got {!r}", y, value[:4])


def iota(_types: Types, attributes: Attributes, declared: Types) -> None:
    """numbers of any shape"""
    (y,) = declared
    _of(y, _NUMBERS, "iota")
    axis_of(attributes["axis"], y.rank)


def output(_types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """anything"""
    return ()


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front; raises IrError unless it is one of a tensor of this rank."""
    _need(-rank <= axis < rank, "axis {} is not one of {} dimensions", axis, rank)
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> set[int]:
    """Some axes counted from the front, each once."""
    counted = {axis_of(axis, rank) for axis in axes}
    _need(len(counted) == len(axes) > 0, "axes must be some and each once, got {}", list(axes))
    return counted


def _windows(
    x: TensorType, kernel: Sequence[Extent], strides: Any, pads: Any, dilations: Any, dims: Dims
) -> tuple[Extent, ...]:
    """Heights and widths of what slides over a picture: pads are top, left, bottom, right."""
    fits = len(strides) == len(dilations) == 2 and min(*strides, *dilations) > 0
    _need(fits, "strides and dilations must be two sizes each, got {} and {}", list(strides), list(dilations))
    _need(len(pads) == 4 and min(pads) >= 0, "pads must be four sizes, got {}", list(pads))
    return tuple(
        _window(x.dims[2 + side], kernel[side], strides[side], pads[side] + pads[2 + side], dilations[side], dims)
        for side in (0, 1)
    )


def _window(extent: Extent, kernel: Extent, stride: int, pads: int, dilation: int, dims: Dims) -> Extent:
    if not isinstance(kernel, int):
        raise IrError(f"a kernel must be of fixed size, got {_name(kernel)}")
    reach = dilation * (kernel - 1) + 1 - pads
    if isinstance(extent, int):
        _need(extent >= reach, "a window of {} does not fit into {}", reach, extent)
        return (extent - reach) // stride + 1
    _need(stride == 1, "a side without a fixed size ({}) takes strides of 1, got {}", _name(extent), stride)
    return extent_of(formulas.of(extent) + formulas.number(1 - reach), dims)


def _broadcast(types: Types) -> TensorType:
    first = _together(types)
    for other in types:
        _need(other.dtype == first.dtype, "operands must be of one element type, got {} and {}", first, other)
    return replace(first, dims=_common([other.dims for other in types]))


def _common(shapes: Iterable[tuple[Extent, ...]]) -> tuple[Extent, ...]:
    """The shape several broadcast to."""
    result: tuple[Extent, ...] = ()
    for shape in shapes:
        short, long = sorted((result, shape), key=len)
        aligned = (*(1 for _ in range(len(long) - len(short))), *short)
        for a, b in zip(aligned, long, strict=True):
            if not (a == 1 or b == 1 or same(a, b)):
                raise IrError(f"[{_shape(result)}] and [{_shape(shape)}] do not broadcast")
        result = tuple(b if a == 1 else a for a, b in zip(aligned, long, strict=True))
    return result


def _together(types: Types) -> TensorType:
    """The operand whose layout and device the result has: all are alike, but for scalars."""
    main = next((x for x in types if x.rank), types[0])
    for other in types:
        fits = other.rank == 0 or other.layout == main.layout
        _need(fits, "operands must be in one layout, got {} and {}", main, other)
    return _device((main, *types))


def _device(types: Types) -> TensorType:
    first = types[0]
    for other in types:
        _need(other.device == first.device, "operands must be on one device, got {} and {}", first, other)
    return first


def _picture(x: TensorType) -> None:
    _of(x, FLOATS, "x")
    _need(x.rank == 4, "x must be [N, C, H, W], got {}", x)


def _row(x: TensorType) -> None:
    _need(x.layout == ROW, "x must be in row layout, got {}", x)


def _of(x: TensorType, dtypes: Iterable[DType], role: str) -> None:
    _need(x.dtype in dtypes, "{} must be of {}, got {}", role, _Names(dtypes), x)


class _Names:
    """Names of element types, made only when they are printed."""

    def __init__(self, dtypes: Iterable[DType]) -> None:
        self._dtypes = dtypes

    def __str__(self) -> str:
        return ", ".join(map(dtype_name, sorted(self._dtypes)))


def _put(x: TensorType, axis: int, extent: Extent) -> TensorType:
    return replace(x, dims=(*x.dims[:axis], extent, *x.dims[axis + 1 :]))


def _without(x: TensorType, axes: set[int]) -> TensorType:
    return replace(x, dims=tuple(extent for index, extent in enumerate(x.dims) if index not in axes))


def _name(extent: Extent) -> str:
    return extent.name if isinstance(extent, Dim) else str(extent)


def _shape(shape: Iterable[Extent]) -> str:
    return " x ".join(map(_name, shape))


def _need(fits: bool, message: str, *values: object) -> None:
    """The message is formatted only when it is raised: rules run thousands of times, and rarely fail."""
    if not fits:
        raise IrError(message.format(*values))
