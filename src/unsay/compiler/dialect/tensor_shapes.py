"""Shape rules of the tensor operations, as in NumPy: an extent is a number or a dimension of the graph.

Called as those of shapes.py. Two extents are the same when they are for all sizes (ir/dims.py); an extent that an
operation computes, such as P + T of a concat, must be a number or a dimension that the graph declares.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from unsay.compiler.dialect.shape_rules import (
    ANY,
    NUMBERS,
    Attributes,
    Dims,
    Result,
    Types,
    axes_of,
    axis_of,
    broadcast,
    need,
    need_dtype,
    need_row,
    put,
    together,
    without,
)
from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.dims import Dim, extent_of, same
from unsay.compiler.ir.types import DTYPES, FLOATS, TensorType, fits_layout, is_layout
from unsay.isa.formats import DType


def unary(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """floats -> the same"""
    (x,) = types
    need_dtype(x, FLOATS, "x")
    return (x,)


def signed(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """numbers -> the same"""
    (x,) = types
    need_dtype(x, NUMBERS, "x")
    return (x,)


def logical_not(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """bool -> the same"""
    (x,) = types
    need_dtype(x, {DType.BOOL}, "x")
    return (x,)


def cast(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """any -> the same shape of `dtype`"""
    (x,) = types
    need_dtype(x, ANY, "x")
    return (x.of(DTYPES[attributes["dtype"]]),)


def arithmetic(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """numbers of one element type, shapes that broadcast -> the common shape"""
    need_dtype(types[0], NUMBERS, "operands")
    return (broadcast(types),)


def real_arithmetic(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """floats of one element type, shapes that broadcast -> the common shape"""
    need_dtype(types[0], FLOATS, "operands")
    return (broadcast(types),)


def comparison(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """operands of one element type, shapes that broadcast -> bool of the common shape"""
    need_dtype(types[0], ANY, "operands")
    return (broadcast(types).of(DType.BOOL),)


def logical(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """bools, shapes that broadcast -> bool"""
    need_dtype(types[0], {DType.BOOL}, "operands")
    return (broadcast(types),)


def select(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """condition bool, a and b of one element type, shapes that broadcast -> the common shape"""
    condition, a, b = types
    need_dtype(condition, {DType.BOOL}, "condition")
    need_dtype(a, ANY, "a")
    need(a.dtype == b.dtype, "a and b must be of one element type, got {} and {}", a, b)
    return (broadcast((a, b, condition.of(a.dtype))),)


def transpose(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x, perm: dimension i of the result is dimension perm[i] of x"""
    (x,) = types
    perm: tuple[int, ...] = attributes["perm"]
    need(sorted(perm) == list(range(x.rank)), "perm must order 0..{}, got {}", x.rank - 1, list(perm))
    need_row(x)
    return (replace(x, dims=tuple(x.dims[axis] for axis in perm)),)


def reshape(types: Types, _attributes: Attributes, declared: Types) -> None:
    """any shape of as many elements, for all sizes"""
    (x,), (y,) = types, declared
    need_row(x)
    need(y == replace(x, dims=y.dims), "only the shape may change, from {} to {}", x, y)
    given, wanted = formulas.free(x.dims), formulas.free(y.dims)
    need(given == wanted, "{} has {} elements, {} has {}", x, given, y, wanted)


def broadcast_to(types: Types, _attributes: Attributes, declared: Types) -> None:
    """a shape that x broadcasts to"""
    (x,), (y,) = types, declared
    need(y == replace(x, dims=y.dims), "only the shape may change, from {} to {}", x, y)
    fits = x.rank <= y.rank and all(a == 1 or same(a, b) for a, b in zip(x.dims[::-1], y.dims[::-1], strict=False))
    need(fits, "{} does not broadcast to {}", x, y)


def concat(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """tensors alike but for `axis` -> their sum there"""
    first = together(types)
    axis = axis_of(attributes["axis"], first.rank)
    total = formulas.number(0)
    for other in types:
        alike = other.rank == first.rank and all(
            same(a, b) for index, (a, b) in enumerate(zip(first.dims, other.dims, strict=True)) if index != axis
        )
        need(alike and other.dtype == first.dtype, "operands must be alike but for axis {}, got {}", axis, other)
        total += formulas.of(other.dims[axis])
    return (put(first, axis, extent_of(total, dims)),)


def slice_(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x, axis: elements start, start + step, ... before stop; negative ones count from the end, as in Python"""
    (x,) = types
    axis = axis_of(attributes["axis"], x.rank)
    extent = x.dims[axis]
    start, stop, step = attributes["start"], attributes["stop"], attributes["step"]
    if isinstance(extent, int):
        length = len(range(*slice(start, stop, step).indices(extent)))
        need(length > 0, "nothing of {} is between {} and {}", x, start, stop)
        return (put(x, axis, length),)
    need(step == 1, "a dimension without a fixed size is cut in steps of 1, got {}", step)
    low, high = (_bound(value, extent) for value in (start, stop))
    return (put(x, axis, extent_of(high + formulas.number(-1) * low, dims)),)


def _bound(value: int, extent: Dim) -> formulas.Formula:
    """Where a slice begins or ends; it must be inside for every size the dimension can have."""
    if value >= extent.high:
        return formulas.of(extent)
    inside = -extent.low <= value <= extent.low
    need(inside, "{} is not inside {} at all its sizes {}..{}", value, extent.name, extent.low, extent.high)
    return formulas.number(value) + (formulas.of(extent) if value < 0 else formulas.number(0))


def gather(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x, indices i32 or i64 -> x with `axis` replaced by the shape of the indices"""
    x, indices = types
    need_dtype(indices, {DType.I32, DType.I64}, "indices")
    axis = axis_of(attributes["axis"], x.rank)
    need_row(x)
    return (replace(x, dims=(*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :])),)


def reduction(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x numbers -> without `axes`, or with 1 in their place if keepdims"""
    (x,) = types
    need_dtype(x, NUMBERS, "x")
    axes = axes_of(attributes["axes"], x.rank)
    if attributes["keepdims"]:
        return (replace(x, dims=tuple(1 if index in axes else extent for index, extent in enumerate(x.dims))),)
    return (without(x, axes),)


def mean(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """floats, as reduction"""
    need_dtype(types[0], FLOATS, "x")
    return reduction(types, attributes, dims)


def argmax(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x numbers -> i64 without `axis`: the first index of the greatest"""
    (x,) = types
    need_dtype(x, NUMBERS, "x")
    return (without(x, {axis_of(attributes["axis"], x.rank)}).of(DType.I64),)


def cumsum(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x numbers, axis -> the same"""
    (x,) = types
    need_dtype(x, NUMBERS, "x")
    axis_of(attributes["axis"], x.rank)
    return (x,)


def pad(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x, pads (before each dimension, then after each), value -> x with a border of value"""
    (x,) = types
    pads = attributes["pads"]
    need_dtype(x, NUMBERS, "x")
    need(len(pads) == 2 * x.rank and min(pads, default=0) >= 0, "pads must be {} sizes, got {}", 2 * x.rank, pads)
    borders = (formulas.number(pads[axis] + pads[axis + x.rank]) for axis in range(x.rank))
    extents = (extent_of(formulas.of(extent) + border, dims) for extent, border in zip(x.dims, borders, strict=True))
    return (replace(x, dims=tuple(extents)),)


def reorder(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x -> the same values in `layout`"""
    (x,) = types
    layout = attributes["layout"]
    need(is_layout(layout), "layout {!r} is not known", layout)
    y = replace(x, layout=layout)
    need(fits_layout(y), "layout {} does not fit {}", layout, x)
    return (y,)


def transfer(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x -> the same on `device`"""
    return (replace(types[0], device=attributes["device"]),)


def size(_types: Types, attributes: Attributes, dims: Dims) -> Result:
    """i64 scalar"""
    need(attributes["dim"] in dims, "the graph has no dimension {}, it has {}", attributes["dim"], ", ".join(dims))
    return (TensorType((), DType.I64),)


def constant(_types: Types, attributes: Attributes, declared: Types) -> None:
    """as many values as elements, or one for all; floats, ints, or 0 and 1 for bool"""
    (y,), value = declared, attributes["value"]
    need_dtype(y, ANY, "a constant")
    fixed = [extent for extent in y.dims if isinstance(extent, int)]
    whole = len(fixed) == y.rank and len(value) == prod(fixed)
    need(len(value) == 1 or whole, "{} needs one value or one for each element, got {}", y, len(value))
    kind = float if y.dtype in FLOATS else int
    need(all(type(item) is kind for item in value), "{} needs values of {}, got {!r}", y, kind.__name__, value[:4])
    need(y.dtype is not DType.BOOL or set(value) <= {0, 1}, "{} needs values of 0 and 1, got {!r}", y, value[:4])


def iota(_types: Types, attributes: Attributes, declared: Types) -> None:
    """numbers of any shape"""
    (y,) = declared
    need_dtype(y, NUMBERS, "iota")
    axis_of(attributes["axis"], y.rank)


def output(_types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """anything"""
    return ()
