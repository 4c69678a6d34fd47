"""Shape rules of products, convolutions, pools, norms and attention, as tensor_shapes.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unsay.compiler.dialect import shapes as step_shapes
from unsay.compiler.dialect.shape_rules import (
    NUMBERS,
    Attributes,
    Dims,
    Result,
    Types,
    axis_of,
    common_shape,
    extent_name,
    need,
    need_dtype,
    on_one_device,
    together,
)
from unsay.compiler.dialect.tensor_shapes import broadcast_to
from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.dims import Extent, extent_of, same
from unsay.compiler.ir.types import FLOATS, TensorType
from unsay.errors import IrError
from unsay.isa.formats import DType


def matmul(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """a [.., M, K], b [.., K, N] of one element type, leading shapes that broadcast -> [.., M, N]"""
    a, b = types
    need_dtype(a, NUMBERS, "a")
    need(a.dtype == b.dtype, "a and b must be of one element type, got {} and {}", a, b)
    need(a.rank >= 2 and b.rank >= 2, "a and b must be matrices or batches of them, got {} and {}", a, b)
    need(same(a.dims[-1], b.dims[-2]), "a must have as many columns as b has rows, got {} and {}", a, b)
    batch = common_shape([a.dims[:-2], b.dims[:-2]])
    return (replace(together(types), dims=(*batch, a.dims[-2], b.dims[-1])),)


def matmul_bias(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """as matmul of floats; bias [N] of the same element type"""
    (y,) = matmul(types[:2], attributes, dims)
    need_dtype(y, FLOATS, "a")
    for bias in types[2:]:
        fits = bias.rank == 1 and same(bias.dims[0], y.dims[-1]) and bias.dtype == y.dtype
        need(fits, "bias must be [{}] like a, got {}", extent_name(y.dims[-1]), bias)
    return (replace(y, device=on_one_device(types).device),)


def along_axis(types: Types, attributes: Attributes, _dims: Dims) -> Result:
    """x floats, axis -> the same"""
    (x,) = types
    need_dtype(x, FLOATS, "x")
    axis_of(attributes["axis"], x.rank)
    return (x,)


def conv2d(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x [N, C, H, W], w [O, C/groups, KH, KW], bias [O] floats -> [N, O, H', W']"""
    x, w, *biases = types
    _picture(x)
    need(w.rank == 4 and w.dtype == x.dtype, "w must be [O, C, KH, KW] of the element type of x, got {}", w)
    outputs, channels, *kernel = w.dims
    groups = attributes["groups"]
    fits = all(isinstance(size, int) for size in (outputs, channels, x.dims[1]))
    fits = fits and outputs % groups == 0 and x.dims[1] == channels * groups  # pyright: ignore[reportOperatorIssue]
    need(fits, "{} groups of w {} do not fit the channels of x {}", groups, w, x)
    for bias in biases:
        need(bias.dims == (outputs,) and bias.dtype == x.dtype, "bias must be [{}] like x, got {}", outputs, bias)
    extents = _windows(x, tuple(kernel), attributes["strides"], attributes["pads"], attributes["dilations"], dims)
    return (replace(on_one_device(types), dims=(x.dims[0], outputs, *extents)),)


def pool2d(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """x [N, C, H, W] floats -> [N, C, H', W']"""
    (x,) = types
    _picture(x)
    kernel, pads = attributes["kernel"], attributes["pads"]
    need(len(kernel) == 2 and min(kernel) > 0, "kernel must be two sizes, got {}", list(kernel))
    smaller = all(pad < size for pad, size in zip(pads, (*kernel, *kernel), strict=False))
    need(smaller, "pads must be less than the kernel {}, got {}", list(kernel), list(pads))
    extents = _windows(x, kernel, attributes["strides"], pads, (1, 1), dims)
    return (replace(x, dims=(*x.dims[:2], *extents)),)


def batch_norm(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """x [N, C, ..] floats, scale, bias, mean, var [C] -> the same as x"""
    x, *vectors = types
    need_dtype(x, FLOATS, "x")
    need(x.rank >= 2, "x must have channels, got {}", x)
    for vector in vectors:
        fits = vector.rank == 1 and same(vector.dims[0], x.dims[1]) and vector.dtype == x.dtype
        need(fits, "scale, bias, mean and var must be [{}] like x, got {}", extent_name(x.dims[1]), vector)
    return (on_one_device(types),)


def add_rms_norm(types: Types, attributes: Attributes, dims: Dims) -> Result:
    """a, b [.., E] f32 of one type, gamma [E] f32 -> the same, and the same in f32 or q8w"""
    a, b, gamma = types
    need(a == b, "a and b must be of one type, got {} and {}", a, b)
    return (a, *step_shapes.rms_norm((a, gamma), attributes, dims))


def sdpa(types: Types, _attributes: Attributes, _dims: Dims) -> Result:
    """q [.., M, D], k [.., N, D], v [.., N, E] floats, mask (bool or like q) broadcasts to [.., M, N] -> [.., M, E]"""
    q, k, v, *masks = types
    need_dtype(q, FLOATS, "q")
    need(q.rank == k.rank == v.rank >= 2, "q, k, v must be of one rank, got {}, {}, {}", q, k, v)
    need(q.dtype == k.dtype == v.dtype, "q, k, v must be of one element type, got {}, {}, {}", q, k, v)
    need(same(q.dims[-1], k.dims[-1]), "q and k must be as wide, got {} and {}", q, k)
    need(same(k.dims[-2], v.dims[-2]), "k and v must have as many rows, got {} and {}", k, v)
    batch = common_shape([q.dims[:-2], k.dims[:-2], v.dims[:-2]])
    scores = replace(q, dims=(*batch, q.dims[-2], k.dims[-2]))
    for mask in masks:
        need(mask.dtype in (DType.BOOL, q.dtype), "the mask must be bool or like q, got {}", mask)
        broadcast_to((mask,), {}, (replace(scores, dtype=mask.dtype, layout=mask.layout, device=mask.device),))
    return (replace(on_one_device(types), dims=(*batch, q.dims[-2], v.dims[-1])),)


def _windows(
    x: TensorType, kernel: Sequence[Extent], strides: Any, pads: Any, dilations: Any, dims: Dims
) -> tuple[Extent, ...]:
    """Heights and widths of what slides over a picture: pads are top, left, bottom, right."""
    fits = len(strides) == len(dilations) == 2 and min(*strides, *dilations) > 0
    need(fits, "strides and dilations must be two sizes each, got {} and {}", list(strides), list(dilations))
    need(len(pads) == 4 and min(pads) >= 0, "pads must be four sizes, got {}", list(pads))
    return tuple(
        _window(x.dims[2 + side], kernel[side], strides[side], pads[side] + pads[2 + side], dilations[side], dims)
        for side in (0, 1)
    )


def _window(extent: Extent, kernel: Extent, stride: int, pads: int, dilation: int, dims: Dims) -> Extent:
    if not isinstance(kernel, int):
        raise IrError(f"a kernel must be of fixed size, got {extent_name(kernel)}")
    reach = dilation * (kernel - 1) + 1 - pads
    if isinstance(extent, int):
        need(extent >= reach, "a window of {} does not fit into {}", reach, extent)
        return (extent - reach) // stride + 1
    need(stride == 1, "a side without a fixed size ({}) takes strides of 1, got {}", extent_name(extent), stride)
    return extent_of(formulas.of(extent) + formulas.number(1 - reach), dims)


def _picture(x: TensorType) -> None:
    need_dtype(x, FLOATS, "x")
    need(x.rank == 4, "x must be [N, C, H, W], got {}", x)
