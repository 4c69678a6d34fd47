"""Rules for ONNX operators that give pictures another size: those of segmentation and super-resolution.

DepthToSpace [N, C*s*s, H, W] -> [N, C, H*s, W*s]      SpaceToDepth: the way back
Resize by whole factors, each element repeated; or to any size of fixed ones, by a product for each side
ConvTranspose: zeros between the elements, then a convolution with the kernel turned around
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.onnx.builder import Builder, Known
from unsay.compiler.frontend.onnx.call import Call, fixed
from unsay.compiler.frontend.onnx.rule import Rule, rule
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType

_REPEATS = (("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"))
"""coordinate_transformation_mode and nearest_mode with which a whole factor repeats each element."""


def _depth_to_space(call: Call) -> Value:
    b, block, (n, channels, h, w) = call.builder, _block(call), _picture(call)
    mode, inner = call.text("mode", "DCR"), channels // (block * block)
    if mode not in ("DCR", "CRD"):
        raise RefusalError(f"attribute mode = {mode[:40]!r}")
    depth_first = mode == "DCR"
    parts = [block, block, inner] if depth_first else [inner, block, block]
    split = b.reshape(call.value(0), [n, *parts, h, w])
    moved = b.emit("transpose", split, perm=(0, 3, 4, 1, 5, 2) if depth_first else (0, 1, 4, 2, 5, 3))
    return b.reshape(moved, [n, inner, h * block, w * block])


def _space_to_depth(call: Call) -> Value:
    b, block, (n, channels, h, w) = call.builder, _block(call), _picture(call)
    split = b.reshape(call.value(0), [n, channels, h // block, block, w // block, block])
    moved = b.emit("transpose", split, perm=(0, 3, 5, 1, 2, 4))
    return b.reshape(moved, [n, channels * block * block, h // block, w // block])


def _block(call: Call) -> int:
    block = call.int("blocksize", 0)
    return block if block >= 1 else _refuse(f"attribute blocksize = {block}")


def _refuse(message: str) -> int:
    raise RefusalError(message)


def _picture(call: Call) -> list[AnySize]:
    sizes = call.shape(0)
    if len(sizes) != 4:
        raise RefusalError(f"data of {len(sizes)} dimensions; 4 are supported")
    return sizes


def _resize(call: Call) -> Value:
    """One side after the other."""
    x, mode = call.value(0), call.text("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise RefusalError(f"attribute mode = {mode[:40]!r}; nearest and linear are supported")
    for axis, (size, factor, wanted) in enumerate(_targets(call)):
        x = _resized(call, x, axis, size, factor, wanted, mode)
    return x


def _targets(call: Call) -> list[tuple[AnySize, float, AnySize]]:
    """Of each dimension its size, the factor, and the size wanted."""
    sizes = call.shape(0)
    if call.has(2) and not call.is_empty(2):
        factors = [float(factor) for factor in np.atleast_1d(call.known(2)).tolist()]
        if len(factors) != len(sizes) or not all(math.isfinite(factor) and factor > 0 for factor in factors):
            raise RefusalError(f"scales {factors} for {len(sizes)} dimensions")
        return [(size, factor, _scaled(size, factor)) for size, factor in zip(sizes, factors, strict=True)]
    wanted = call.sizes(3)
    if len(wanted) != len(sizes):
        raise RefusalError(f"sizes {wanted} for {len(sizes)} dimensions")
    return [(size, _factor(size, to), to) for size, to in zip(sizes, wanted, strict=True)]


def _scaled(size: AnySize, factor: float) -> AnySize:
    if isinstance(size, int):
        return math.floor(size * factor)
    if factor != int(factor):
        raise RefusalError(f"{size} by {factor:g}; whole factors, or fixed sizes, are supported")
    return size * int(factor)


def _factor(size: AnySize, wanted: AnySize) -> float:
    if size == wanted:
        return 1.0
    (a,), (b,) = fixed([size]), fixed([wanted])
    return b / a


def _resized(call: Call, x: Value, axis: int, size: AnySize, factor: float, wanted: AnySize, mode: str) -> Value:
    b, how = call.builder, call.text("coordinate_transformation_mode", "half_pixel")
    nearest = call.text("nearest_mode", "round_prefer_floor")
    if size == wanted and factor == 1.0:
        return x
    if mode == "nearest" and factor == int(factor) and (how, nearest) in _REPEATS:
        return _repeated(b, x, axis, int(factor))
    before, after = fixed([size, wanted])
    places = _places(how, before, after, factor)
    if mode == "nearest":
        indices = np.clip(_rounded(nearest, places), 0, before - 1).astype(np.int64)
        return b.emit("gather", x, b.lift(Known(indices, DType.I64)), axis=axis)
    return _interpolated(b, x, axis, np.clip(places, 0, before - 1), before)


def _repeated(b: Builder, x: Value, axis: int, times: int) -> Value:
    """Along an axis [a] -> [a, 1] -> [a, times] -> [a * times]"""
    sizes = Call.sizes_of(x)
    head, size, rest = sizes[:axis], sizes[axis], sizes[axis + 1 :]
    spread = b.broadcast(b.reshape(x, [*head, size, 1, *rest]), [*head, size, times, *rest])
    return b.reshape(spread, [*head, size * times, *rest])


def _places(how: str, before: int, after: int, factor: float) -> NDArray[np.float32]:
    """Where each element made lies among those given; in float32, as others do, which decides between neighbours."""
    index, half, scale = np.arange(after, dtype=np.float32), np.float32(0.5), np.float32(factor)
    if how == "asymmetric":
        return index / scale
    if how == "align_corners":
        return index * np.float32(before - 1) / np.float32(max(after - 1, 1))
    if how == "half_pixel" or (how == "pytorch_half_pixel" and after > 1):
        return (index + half) / scale - half
    if how == "pytorch_half_pixel":
        return np.zeros_like(index)
    raise RefusalError(f"attribute coordinate_transformation_mode = {how[:40]!r}")


def _rounded(nearest: str, places: NDArray[np.float32]) -> NDArray[np.float32]:
    if nearest == "floor":
        return np.floor(places)
    if nearest == "ceil":
        return np.ceil(places)
    if nearest == "round_prefer_floor":
        return np.ceil(places - np.float32(0.5))
    if nearest == "round_prefer_ceil":
        return np.floor(places + np.float32(0.5))
    raise RefusalError(f"attribute nearest_mode = {nearest[:40]!r}")


def _interpolated(b: Builder, x: Value, axis: int, places: NDArray[np.float32], before: int) -> Value:
    """y = x w^T along an axis, w [after, before] with the shares of the two neighbours"""
    low = np.minimum(np.floor(places).astype(int), before - 1)
    high, share = np.minimum(low + 1, before - 1), places - low
    weights = np.zeros((before, len(places)), np.float32)
    np.add.at(weights, (low, np.arange(len(places))), 1 - share)
    np.add.at(weights, (high, np.arange(len(places))), share)
    last = x.type.rank - 1
    swapped = tuple(last if i == axis else axis if i == last else i for i in range(x.type.rank))
    turned = x if axis == last else b.emit("transpose", x, perm=swapped)
    y = b.emit("matmul", turned, b.cast(b.lift(Known(weights, DType.F32)), x.type.dtype))
    return y if axis == last else b.emit("transpose", y, perm=swapped)


_RESIZE = ("mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a")
"""The last is of a mode that is refused; exporters write it whatever the mode."""

RULES: dict[str, Rule] = {
    "DepthToSpace": rule(_depth_to_space, 1, "blocksize", "mode"),
    "SpaceToDepth": rule(_space_to_depth, 1, "blocksize"),
    "Resize": rule(_resize, (3, 4), *_RESIZE),
}
