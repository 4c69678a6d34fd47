"""Rules for ONNX operators that change shapes and join tensors, and for what is made of sizes."""

from __future__ import annotations

import numpy as np

from unsay.compiler.frontend.onnx.builder import Item, Known, known_sizes
from unsay.compiler.frontend.onnx.call import Call, axis_of
from unsay.compiler.frontend.onnx.fold import fill
from unsay.compiler.frontend.onnx.rule import Rule, rule
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError, Size, always_equal, product
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.types import FLOATS, TensorType
from unsay.isa.formats import DType


def _shape(call: Call) -> Item:
    sizes = call.shape(0)
    start, end = call.int("start", 0), call.int("end", len(sizes))
    return known_sizes(sizes[start:end])


def _size(call: Call) -> Item:
    array = np.array(product(call.shape(0)), object)
    return Known(array if isinstance(array.item(), Size) else array.astype(np.int64), DType.I64)


def _reshape(call: Call) -> Value:
    """0 keeps a dimension, -1 is what is left"""
    given, wanted = call.shape(0), call.sizes(1)
    keeps = not call.flag("allowzero")
    if keeps and any(_is(size, 0) and axis >= len(given) for axis, size in enumerate(wanted)):
        raise RefusalError(f"shape {wanted} keeps a dimension that {given} does not have")
    wanted = [given[axis] if keeps and _is(size, 0) else size for axis, size in enumerate(wanted)]
    unknown = [axis for axis, size in enumerate(wanted) if _is(size, -1)]
    if len(unknown) > 1:
        raise RefusalError(f"shape {wanted} leaves {len(unknown)} dimensions open")
    for axis in unknown:
        rest = product(size for index, size in enumerate(wanted) if index != axis)
        if _is(rest, 0):
            raise RefusalError(f"shape {wanted}")
        wanted[axis] = product(given) // rest
    return call.builder.reshape(call.value(0), wanted)


def _is(size: AnySize, number: int) -> bool:
    return isinstance(size, int) and size == number


def _flatten(call: Call) -> Value:
    sizes = call.shape(0)
    axis = call.int("axis", 1)
    if not -len(sizes) <= axis <= len(sizes):
        raise RefusalError(f"axis {axis} of a tensor with {len(sizes)} dimensions")
    axis += len(sizes) if axis < 0 else 0
    return call.builder.reshape(call.value(0), [product(sizes[:axis]), product(sizes[axis:])])


def _squeeze(call: Call) -> Value:
    sizes = call.shape(0)
    if call.has(1):
        axes = {axis_of(axis, len(sizes)) for axis in call.numbers(1)}
    else:
        axes = {axis for axis, size in enumerate(sizes) if size == 1}
    return call.builder.reshape(call.value(0), [size for axis, size in enumerate(sizes) if axis not in axes])


def _unsqueeze(call: Call) -> Value:
    sizes, given = call.shape(0), call.numbers(1)
    axes = sorted(axis_of(axis, len(sizes) + len(given)) for axis in given)
    for axis in axes:
        sizes.insert(axis, 1)
    return call.builder.reshape(call.value(0), sizes)


def _transpose(call: Call) -> Value:
    x = call.value(0)
    perm = call.ints("perm", range(x.type.rank - 1, -1, -1))
    return x if perm == tuple(range(x.type.rank)) else call.builder.emit("transpose", x, perm=perm)


def _expand(call: Call) -> Value:
    """To the shape both broadcast to."""
    return call.builder.broadcast(call.value(0), broadcast_sizes(call.shape(0), call.sizes(1)))


def broadcast_sizes(a: list[AnySize], b: list[AnySize]) -> list[AnySize]:
    """The shape two shapes broadcast to."""
    rank = max(len(a), len(b))
    pairs = list(zip([1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b, strict=True))
    for x, y in pairs:
        if not (_is(x, 1) or _is(y, 1) or always_equal(x, y)):
            raise RefusalError(f"{a} and {b} do not broadcast, or only at some sizes")
    return [y if _is(x, 1) else x for x, y in pairs]


def _tile(call: Call) -> Value:
    """[a, b] by (m, n) -> reshape [1, a, 1, b], broadcast to [m, a, n, b], reshape [m*a, n*b]"""
    b, sizes, repeats = call.builder, call.shape(0), call.sizes(1)
    if len(sizes) != len(repeats):
        raise RefusalError(f"{len(repeats)} repeats for {len(sizes)} dimensions")
    spread = b.reshape(call.value(0), [part for size in sizes for part in (1, size)])
    pairs = list(zip(repeats, sizes, strict=True))
    whole = b.broadcast(spread, [part for pair in pairs for part in pair])
    return b.reshape(whole, [repeat * size for repeat, size in pairs])


def _concat(call: Call) -> Value:
    """Empty ones among the inputs, as an export without a past has, are left out."""
    values = [call.value(index) for index in range(len(call.node.inputs)) if not call.is_empty(index)]
    if len(values) == 1:
        return values[0]
    if len({value.type.rank for value in values}) != 1:
        raise RefusalError(f"tensors of {sorted(value.type.rank for value in values)} dimensions")
    axis = axis_of(call.int("axis", 0), values[0].type.rank)
    total: AnySize = 0
    for value in values:
        total = total + call.sizes_of(value)[axis]
    call.builder.has(total)
    return call.builder.emit("concat", *values, axis=axis)


def _range(call: Call) -> Value:
    """start + delta * (0, 1, 2 ...)"""
    if call.dtype(0) in FLOATS:
        raise RefusalError("a range of floats")
    start, limit, delta = (call.size(index) for index in range(3))
    if not isinstance(delta, int) or delta == 0:
        raise RefusalError(f"a range by {delta} of {call.dtype(0).name.lower()}")
    b, dtype = call.builder, call.dtype(0)
    positions = b.iota([(limit - start) // delta], 0, dtype)
    if delta != 1:
        positions = b.emit("mul", positions, b.number(delta, positions))
    if isinstance(start, int) and start == 0:
        return positions
    return b.emit("add", positions, b.cast(b.size(start), dtype))


def _constant_of_shape(call: Call) -> Value:
    value, dtype = fill(call)
    kind = TensorType(call.builder.extents(call.sizes(0)), dtype)
    item = value.item()
    return call.builder.declare("constant", type=kind, value=(float(item) if dtype in FLOATS else int(item),))


def _trilu(call: Call) -> Value:
    """Keeps row + k >= column (lower) or column >= row + k (upper), 0 elsewhere"""
    b, x, sizes = call.builder, call.value(0), call.shape(0)[-2:]
    k = call.size(1) if call.has(1) else 0
    rows, columns = b.iota(sizes, 0), b.iota(sizes, 1)
    shifted = b.emit("add", rows, b.size(k))
    kept = (
        b.emit("greater_equal", columns, shifted)
        if call.flag("upper", True)
        else b.emit("less_equal", columns, shifted)
    )
    zero = b.declare("constant", type=TensorType((), x.type.dtype), value=(0.0 if x.type.dtype in FLOATS else 0,))
    return b.emit("select", kept, x, zero)


def _pad(call: Call) -> Value:
    b, x, sizes = call.builder, call.value(0), call.shape(0)
    if call.text("mode", "constant") != "constant":
        raise RefusalError(f"attribute mode = {call.text('mode', '')!r}; constant is supported")
    pads = _all_pads(call, len(sizes))
    value = _one(call, 2) if call.has(2) else 0.0
    for axis, size in enumerate(sizes):
        b.has(size + pads[axis] + pads[axis + len(sizes)])
    return b.emit("pad", x, pads=pads, value=value) if any(pads) else x


def _one(call: Call, index: int) -> float:
    array = call.known(index)
    if array.size != 1 or array.dtype == object:
        raise RefusalError(f"input {index} must be one number, it is {list(array.shape)}")
    return float(array.item())


def _all_pads(call: Call, rank: int) -> tuple[int, ...]:
    given = call.numbers(1)
    axes = [axis_of(axis, rank) for axis in call.numbers(3)] if call.has(3) else list(range(rank))
    if len(given) != 2 * len(axes) or any(pad < 0 for pad in given):
        raise RefusalError(f"pads {given} for {len(axes)} dimensions")
    pads = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        pads[axis], pads[axis + rank] = given[index], given[index + len(axes)]
    return tuple(pads)


RULES: dict[str, Rule] = {
    "Shape": rule(_shape, 1, "start", "end"),
    "Size": rule(_size, 1),
    "Reshape": rule(_reshape, 2, "allowzero"),
    "Flatten": rule(_flatten, 1, "axis"),
    "Squeeze": rule(_squeeze, (1, 2)),
    "Unsqueeze": rule(_unsqueeze, 2),
    "Transpose": rule(_transpose, 1, "perm"),
    "Expand": rule(_expand, 2),
    "Tile": rule(_tile, 2),
    "Concat": rule(_concat, (1, np.inf), "axis"),
    "Range": rule(_range, 3),
    "ConstantOfShape": rule(_constant_of_shape, 1, "value"),
    "Trilu": rule(_trilu, (1, 2), "upper"),
    "Pad": rule(_pad, (2, 4), "mode"),
}
