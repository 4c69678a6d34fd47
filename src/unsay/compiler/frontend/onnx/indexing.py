"""Rules for ONNX operators that take parts of a tensor: slices, splits, gathers."""

from __future__ import annotations

from unsay.compiler.frontend.onnx.builder import Item
from unsay.compiler.frontend.onnx.call import Call, axis_of
from unsay.compiler.frontend.onnx.rule import Rule, rule
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError, Size, always_equal, product
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType

_END = 1 << 31
"""What exporters write for `to the end` is at least this."""


def _split(call: Call) -> tuple[Item, ...]:
    x, sizes = call.value(0), call.shape(0)
    axis = axis_of(call.int("axis", 0), x.type.rank)
    parts = call.sizes(1) if call.has(1) else _even(sizes[axis], call.int("num_outputs", len(call.node.outputs)))
    if not parts:
        raise RefusalError("no parts")
    made: list[Item] = []
    start: AnySize = 0
    for part in parts:
        made.append(_cut(call, x, axis, start, start + part))
        start = start + part
    return tuple(made)


def _even(size: AnySize, count: int) -> list[AnySize]:
    """Equal parts, the last one smaller."""
    if count < 1:
        raise RefusalError(f"{count} parts")
    if isinstance(size, Size):
        return [size // count] * count
    part = -(-size // count)
    return [min(part, size - part * index) for index in range(count)]


def _slice(call: Call) -> Value:
    x = call.value(0)
    starts, ends = call.sizes(1), call.sizes(2)
    axes = call.numbers(3) if call.has(3) else list(range(len(starts)))
    steps = call.numbers(4) if call.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise RefusalError("starts, ends, axes and steps do not fit together")
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        x = _slice_one(call, x, axis_of(axis, x.type.rank), start, end, step)
    return x


def _slice_one(call: Call, x: Value, axis: int, start: AnySize, end: AnySize, step: int) -> Value:
    size = call.sizes_of(x)[axis]
    if step < 1:
        raise RefusalError(f"a step of {step}")
    start, end = _bound(start, size), _bound(end, size)
    if step == 1:
        return _cut(call, x, axis, start, end)
    if isinstance(size, Size) or isinstance(start, Size) or isinstance(end, Size):
        raise RefusalError(f"steps of {step} along {size}")
    return call.builder.emit("slice", x, axis=axis, start=start, stop=end, step=step)


def _bound(position: AnySize, size: AnySize) -> AnySize:
    """A start or end counted from the front, and not beyond the end."""
    if isinstance(position, int) and position >= _END:
        return size
    if position < 0:
        position = position + size
    return size if position > size else 0 if position < 0 else position


def _cut(call: Call, x: Value, axis: int, start: AnySize, end: AnySize) -> Value:
    """x[start:end] along an axis; where the bounds are no numbers from either end, a gather of start + 0, 1, 2 ..."""
    b, size = call.builder, call.sizes_of(x)[axis]
    if always_equal(start, 0) and always_equal(end, size):
        return x
    if end <= start:
        raise RefusalError(f"a slice of no elements, {start} to {end} of {size}")
    b.has(end - start)
    first, stop = _from_an_end(start, size), _END if always_equal(end, size) else _from_an_end(end, size)
    if first is not None and stop is not None:
        return b.emit("slice", x, axis=axis, start=first, stop=stop, step=1)
    positions = b.iota([end - start], 0)
    if not always_equal(start, 0):
        positions = b.emit("add", positions, b.size(start))
    return b.emit("gather", x, positions, axis=axis)


def _from_an_end(position: AnySize, size: AnySize) -> int | None:
    """A position as a number from the front, or a negative one from the back; None if it is neither."""
    if isinstance(position, int):
        return position
    behind = position - size
    return behind if isinstance(behind, int) and behind < 0 else None


def _gather(call: Call) -> Value:
    x, axis = call.value(0), call.int("axis", 0)
    return call.builder.emit("gather", x, call.value(1), axis=axis_of(axis, x.type.rank))


def _gather_nd(call: Call) -> Value:
    """data[indices[.., 0], indices[.., 1], ..]: a gather from the indexed dimensions laid in a row"""
    if call.int("batch_dims", 0):
        raise RefusalError(f"attribute batch_dims = {call.int('batch_dims', 0)}; 0 is supported")
    b, sizes, indices = call.builder, call.shape(0), call.value(1)
    depth = call.shape(1)[-1] if call.shape(1) else 0
    if not isinstance(depth, int) or not 1 <= depth <= len(sizes):
        raise RefusalError(f"{depth} indices into {len(sizes)} dimensions")
    row: Value | None = None
    for place, size in enumerate(sizes[:depth]):
        part = _counted(call, _component(call, indices, place), size)
        row = part if row is None else b.emit("add", b.emit("mul", row, b.size(size)), part)
    assert row is not None, depth
    return b.emit("gather", b.reshape(call.value(0), [product(sizes[:depth]), *sizes[depth:]]), row, axis=0)


def _component(call: Call, indices: Value, place: int) -> Value:
    """indices[.., place]"""
    b, axis = call.builder, indices.type.rank - 1
    part = b.emit("slice", indices, axis=axis, start=place, stop=place + 1, step=1)
    return b.cast(b.reshape(part, call.sizes_of(indices)[:-1]), DType.I64)


def _counted(call: Call, index: Value, size: AnySize) -> Value:
    """Indices counted from the front: negative ones are from the end."""
    b = call.builder
    behind = b.emit("add", index, b.size(size))
    return b.emit("select", b.emit("less", index, b.number(0, index)), behind, index)


RULES: dict[str, Rule] = {
    "Split": rule(_split, (1, 2), "axis", "num_outputs"),
    "Slice": rule(_slice, (3, 5)),
    "Gather": rule(_gather, 2, "axis"),
    "GatherND": rule(_gather_nd, 2, "batch_dims"),
}
