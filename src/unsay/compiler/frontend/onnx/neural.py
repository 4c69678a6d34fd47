"""Rules for ONNX operators of neural networks: products, convolutions, pools."""

from __future__ import annotations

import numpy as np

from unsay.compiler.frontend.onnx.builder import Builder, Known
from unsay.compiler.frontend.onnx.call import Call, fixed
from unsay.compiler.frontend.onnx.rule import Rule, Run, rule
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType


def _matmul(call: Call) -> Value:
    """A vector on either side is a matrix of one row or column for the time being."""
    b, a, w = call.builder, call.value(0), call.value(1)
    left, right = call.shape(0), call.shape(1)
    if not left or not right:
        raise RefusalError("a product of scalars")
    product_ = b.emit(
        "matmul", b.reshape(a, [1, *left]) if len(left) == 1 else a, b.reshape(w, [*right, 1]) if len(right) == 1 else w
    )
    sizes = call.sizes_of(product_)
    if len(left) == 1:
        del sizes[-2]
    if len(right) == 1:
        del sizes[-1]
    return b.reshape(product_, sizes)


def _gemm(call: Call) -> Value:
    """alpha * A' B' + beta * C"""
    b, y = call.builder, _product(call)
    y = _scaled(b, y, call.float("alpha", 1.0))
    return b.emit("add", y, _scaled(b, call.value(2), call.float("beta", 1.0))) if call.has(2) else y


def _product(call: Call) -> Value:
    b = call.builder
    sides = [call.value(0), call.value(1)]
    for index, name in enumerate(("transA", "transB")):
        if call.flag(name):
            sides[index] = b.emit("transpose", sides[index], perm=(1, 0))
    return b.emit("matmul", *sides)


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else b.emit("mul", x, b.number(factor, x))


def _conv(call: Call) -> Value:
    """Pictures; a signal [N, C, L] is a picture of one row."""
    b, x, w = call.builder, call.value(0), call.value(1)
    sides = x.type.rank - 2
    if sides not in (1, 2):
        raise RefusalError(f"a convolution over {sides} dimensions; 1 and 2 are supported")
    if len(call.shape(1)) != sides + 2:
        raise RefusalError(f"a kernel of {len(call.shape(1))} dimensions for data of {sides + 2}")
    kernel = call.ints("kernel_shape", fixed(call.shape(1)[2:]))
    strides, dilations = call.ints("strides", (1,) * sides), call.ints("dilations", (1,) * sides)
    pads = _pads(call, kernel, strides, dilations)
    if sides == 1:
        sizes, weights = call.shape(0), call.shape(1)
        x = b.reshape(x, [*sizes[:2], 1, sizes[2]])
        w = b.reshape(w, [*weights[:2], 1, weights[2]])
        strides, dilations, pads = (1, *strides), (1, *dilations), (0, pads[0], 0, pads[1])
    biases, groups = [call.value(2)] if call.has(2) else [], call.int("group", 1)
    if groups < 1:
        raise RefusalError(f"attribute group = {groups}")
    _have_windows(b, x, (w.type.dims[2], w.type.dims[3]), pads, dilations)
    y = b.emit("conv2d", x, w, *biases, strides=strides, pads=pads, dilations=dilations, groups=groups)
    made = call.sizes_of(y)
    return y if sides == 2 else b.reshape(y, [*made[:2], made[3]])


def _conv_transpose(call: Call) -> Value:
    """Zeros between the elements of a picture, then a convolution with the kernel turned around."""
    b, x, sizes, weights = call.builder, call.value(0), call.shape(0), call.shape(1)
    if len(sizes) != 4 or len(weights) != 4 or call.text("auto_pad", "NOTSET") != "NOTSET":
        raise RefusalError(f"data of {len(sizes)} dimensions, or auto_pad; pictures with pads are supported")
    kernel, strides = fixed(weights[2:]), call.ints("strides", (1, 1))
    dilations, more = call.ints("dilations", (1, 1)), call.ints("output_padding", (0, 0))
    pads = _pads(call, kernel, strides, dilations)
    if call.ints("kernel_shape", kernel) != kernel or min(strides) < 1 or len(more) != 2:
        raise RefusalError(f"strides {strides}, output_padding {more} or kernel_shape of a kernel {kernel}")
    reach = [dilation * (size - 1) for size, dilation in zip(kernel, dilations, strict=True)]
    before = [reach[side] - pads[side] for side in (0, 1)]
    after = [reach[side] - pads[side + 2] + more[side] - (strides[side] - 1) for side in (0, 1)]
    x = _spread(call, x, strides)
    for side in (0, 1):
        x = _cropped(b, x, side + 2, -min(before[side], 0), min(after[side], 0))
    groups = call.int("group", 1)
    turned = _turned(call, weights, groups)
    borders = (*(max(pad, 0) for pad in before), *(max(pad, 0) for pad in after))
    _have_windows(b, x, kernel, borders, dilations)
    biases = [call.value(2)] if call.has(2) else []
    return b.emit("conv2d", x, turned, *biases, strides=(1, 1), pads=borders, dilations=dilations, groups=groups)


def _spread(call: Call, x: Value, strides: tuple[int, ...]) -> Value:
    """[N, C, H, W] -> [N, C, H*s, W*s] with s - 1 zeros after each element"""
    b, (n, channels, h, w) = call.builder, call.sizes_of(x)
    if strides == (1, 1):
        return x
    after = (0, 0, 0, strides[0] - 1, 0, strides[1] - 1)
    wide = b.emit("pad", b.reshape(x, [n, channels, h, 1, w, 1]), pads=(*(0,) * 6, *after), value=0.0)
    return b.reshape(wide, [n, channels, h * strides[0], w * strides[1]])


def _cropped(b: Builder, x: Value, axis: int, start: int, end: int) -> Value:
    """x without `start` elements before and `-end` after, along an axis."""
    if start == end == 0:
        return x
    size = Call.sizes_of(x)[axis]
    b.has(size - start + end)
    return b.emit("slice", x, axis=axis, start=start, stop=end or 1 << 31, step=1)


def _turned(call: Call, sizes: list[AnySize], groups: int) -> Value:
    """w [I, O / groups, h, w] -> [O, I / groups, h, w], rows and columns from the last to the first"""
    b, w, (inputs, outputs, *kernel) = call.builder, call.value(1), fixed(sizes)
    if groups < 1 or inputs % groups:
        raise RefusalError(f"attribute group = {groups} of {inputs} channels")
    for axis, size in enumerate(kernel, 2):
        backwards = np.arange(size - 1, -1, -1, dtype=np.int64)
        w = b.emit("gather", w, b.lift(Known(backwards, DType.I64)), axis=axis) if size > 1 else w
    parts = b.reshape(w, [groups, inputs // groups, outputs, *kernel])
    return b.reshape(b.emit("transpose", parts, perm=(0, 2, 1, 3, 4)), [groups * outputs, inputs // groups, *kernel])


def _pads(call: Call, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...]) -> tuple[int, ...]:
    """Those before each side, then those after; auto_pad needs sides of fixed size."""
    sides, mode = len(kernel), call.text("auto_pad", "NOTSET")
    if not len(strides) == len(dilations) == sides:
        raise RefusalError(f"kernel {kernel}, strides {strides} and dilations {dilations} do not fit together")
    if mode == "NOTSET":
        pads = call.ints("pads", (0,) * (2 * sides))
        if len(pads) != 2 * sides:
            raise RefusalError(f"{len(pads)} pads for {sides} sides")
        return pads
    if mode == "VALID":
        return (0,) * (2 * sides)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise RefusalError(f"attribute auto_pad = {mode[:40]!r}")
    pairs = [
        _same(size, *window, mode == "SAME_UPPER")
        for size, window in zip(fixed(call.shape(0)[2:]), zip(kernel, strides, dilations, strict=True), strict=True)
    ]
    return (*(before for before, _ in pairs), *(after for _, after in pairs))


def _same(size: int, kernel: int, stride: int, dilation: int, is_upper: bool) -> tuple[int, int]:
    """Before and after a side, so that ceil(size / stride) windows fit."""
    if stride < 1:
        raise RefusalError(f"a stride of {stride}")
    total = max(0, (-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size)
    small, large = total // 2, total - total // 2
    return (small, large) if is_upper else (large, small)


def _have_windows(
    b: Builder, x: Value, kernel: tuple[object, ...], pads: tuple[int, ...], dilations: tuple[int, ...]
) -> None:
    """Declare the sides of the result where those of x have no fixed size; strides are then 1."""
    for side, size in enumerate(Call.sizes_of(x)[2:]):
        window = kernel[side]
        if not isinstance(size, int) and isinstance(window, int) and len(pads) == 4:
            b.has(size + (pads[side] + pads[side + 2] - dilations[side] * (window - 1)))


def _max_pool(call: Call) -> Value:
    kernel, strides, pads = _pool(call)
    return call.builder.emit("max_pool2d", call.value(0), kernel=kernel, strides=strides, pads=pads)


def _average_pool(call: Call) -> Value:
    """With count_include_pad the border counts as zeros: pad first, then take the mean of whole windows."""
    b, x = call.builder, call.value(0)
    kernel, strides, pads = _pool(call)
    if call.flag("count_include_pad") and any(pads):
        if call.flag("ceil_mode"):
            raise RefusalError("attributes ceil_mode and count_include_pad together")
        top, left, bottom, right = pads
        for side, size in enumerate(call.shape(0)[2:]):
            b.has(size + pads[side] + pads[side + 2])
        x = b.emit("pad", x, pads=(0, 0, top, left, 0, 0, bottom, right), value=0.0)
        pads = (0, 0, 0, 0)
    return b.emit("average_pool2d", x, kernel=kernel, strides=strides, pads=pads)


def _pool(call: Call) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, strides, pads; ceil_mode is more padding at the end."""
    kernel = call.ints("kernel_shape", ())
    if len(kernel) != 2 or len(call.shape(0)) != 4:
        raise RefusalError(f"a pool over {len(call.shape(0)) - 2} dimensions; 2 are supported")
    if call.flag("storage_order") or set(call.ints("dilations", (1, 1))) != {1}:
        raise RefusalError("attributes storage_order and dilations must be 0 and 1")
    strides = call.ints("strides", (1, 1))
    pads = list(_pads(call, kernel, strides, (1, 1)))
    if len(pads) != 4 or min(strides) < 1:
        raise RefusalError(f"strides {strides} and pads {pads}")
    if call.flag("ceil_mode"):
        for side, size in enumerate(fixed(call.shape(0)[2:])):
            pads[side + 2] += _ceil_pad(size + pads[side], pads[side + 2], kernel[side], strides[side])
    _have_windows(call.builder, call.value(0), kernel, tuple(pads), (1, 1))
    return kernel, strides, tuple(pads)


def _ceil_pad(size: int, after: int, kernel: int, stride: int) -> int:
    """More room at the end for a last window, which must begin inside the picture or its border before it."""
    count = -(-(size + after - kernel) // stride) + 1
    if (count - 1) * stride >= size:
        count -= 1
    return max(0, (count - 1) * stride + kernel - size - after)


def _global(kind: str) -> Run:
    def run(call: Call) -> Value:
        x = call.value(0)
        return call.builder.emit(kind, x, axes=tuple(range(2, x.type.rank)), keepdims=True)

    return run


_WINDOW = ("auto_pad", "kernel_shape", "pads", "strides", "dilations")

RULES: dict[str, Rule] = {
    "MatMul": rule(_matmul, 2),
    "Gemm": rule(_gemm, (2, 3), "alpha", "beta", "transA", "transB"),
    "Conv": rule(_conv, (2, 3), *_WINDOW, "group"),
    "ConvTranspose": rule(_conv_transpose, (2, 3), *_WINDOW, "group", "output_padding"),
    "MaxPool": rule(_max_pool, 1, *_WINDOW, "ceil_mode", "storage_order"),
    "AveragePool": rule(_average_pool, 1, *_WINDOW, "ceil_mode", "count_include_pad"),
    "GlobalAveragePool": rule(_global("reduce_mean"), 1),
    "GlobalMaxPool": rule(_global("reduce_max"), 1),
}  # fmt: skip
