"""Rules of ATen operations that make tensors, give them other shapes, and look elements up (torch_ops.py)."""

from __future__ import annotations

from collections.abc import Sequence

from unsay.compiler.frontend.torch_builder import Builder
from unsay.compiler.frontend.torch_call import Call, Empty, Rule, rows
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.dims import Extent, same
from unsay.isa.formats import DType


def _reshape(*arguments: str) -> Rule:
    """The elements in the order they are; what the sizes come to is in the result's type."""

    def rule(call: Call, to: Builder) -> Value:
        for name in arguments:
            call[name]
        return to.reshape(call.tensor("self"), call.result.dims)

    return rule


def _expand(call: Call, to: Builder) -> Value:
    call["size"]
    return to.broadcast(call.tensor("self"), call.result.dims)


def _permute(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    return to.transpose(x, [axis % x.type.rank for axis in call["dims"]])


def _transpose(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    perm = list(range(x.type.rank))
    if perm:
        a, b = call.axis("dim0", len(perm)), call.axis("dim1", len(perm))
        perm[a], perm[b] = perm[b], perm[a]
    return to.transpose(x, perm)


def _matrix_transpose(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    return to.transpose(x, [*range(x.type.rank - 2), *range(x.type.rank)[:-3:-1]])


def _slice(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    axis = call.axis("dim", x.type.rank)
    extent, wanted = x.type.dims[axis], call.result.dims[axis]
    start, stop = call["start"], call["end"]
    if call["step"] == 1 and same(extent, wanted):
        return x
    high = extent if isinstance(extent, int) else extent.high
    start, stop = 0 if start is None else start, high if stop is None else stop
    if not isinstance(start, int) or not isinstance(stop, int):
        call.refuse(f"bounds {start}..{stop} of a size that is not a number")
    return to.emit("slice", x, axis=axis, start=start, stop=min(stop, high), step=call["step"])


def _select(call: Call, to: Builder) -> Value:
    x, index = call.tensor("self"), call["index"]
    axis = call.axis("dim", x.type.rank)
    if not isinstance(index, int):
        call.refuse(f"index {index}, a size that is not a number")
    extent = x.type.dims[axis]
    stop = index + 1 if index != -1 else extent if isinstance(extent, int) else extent.high
    return to.reshape(to.emit("slice", x, axis=axis, start=index, stop=stop, step=1), call.result.dims)


def _split(call: Call, to: Builder) -> tuple[Value, ...]:
    """split, chunk: pieces one after the other, of the sizes torch states."""
    x = call.tensor("self")
    for name in ("split_size", "split_sizes", "chunks"):
        if name in call:
            call[name]
    axis, start, pieces = call.axis("dim", x.type.rank), 0, list[Value]()
    for piece in call.results:
        length = piece.dims[axis]
        if not isinstance(length, int):
            return call.refuse(f"a piece of size {length.name}, which is not a number")
        pieces.append(to.emit("slice", x, axis=axis, start=start, stop=start + length, step=1))
        start += length
    return tuple(pieces)


def _cat(call: Call, to: Builder) -> Value:
    parts = [to.cast(part, call.result.dtype) for part in call["tensors"] if not isinstance(part, Empty)]
    return _joined(to, parts, call.axis("dim", call.result.rank))


def _diff(call: Call, to: Builder) -> Value:
    """x[i] - x[i - 1], `prepend` before the first."""
    call.need("n", 1)
    parts = [call[name] for name in ("prepend", "self", "append")]
    axis = call.axis("dim", call.result.rank)
    x = _joined(to, [to.cast(part, call.result.dtype) for part in parts if part is not None], axis)
    extent = x.type.dims[axis]
    stop = extent if isinstance(extent, int) else extent.high
    later = to.emit("slice", x, axis=axis, start=1, stop=stop, step=1)
    return to.emit("sub", later, to.emit("slice", x, axis=axis, start=0, stop=-1, step=1))


def _joined(to: Builder, parts: Sequence[Value], axis: int) -> Value:
    """Tensors one after the other, along an axis whose size the graph then knows."""
    to.sum(part.type.dims[axis] for part in parts)
    return to.emit("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def _repeat_interleave(call: Call, to: Builder) -> Value:
    """Each element `repeats` times in a row along a dimension."""
    x = call.tensor("self")
    call["output_size"]
    if call["dim"] is None:
        x = to.reshape(x, (to.product(x.type.dims),))
    axis = 0 if call["dim"] is None else call.axis("dim", x.type.rank)
    before, after = x.type.dims[: axis + 1], x.type.dims[axis + 1 :]
    wide = to.broadcast(to.reshape(x, (*before, 1, *after)), (*before, call["repeats"], *after))
    return to.reshape(wide, call.result.dims)


def _stack(call: Call, to: Builder) -> Value:
    axis = call.axis("dim", call.result.rank)
    one = tuple(1 if index == axis else extent for index, extent in enumerate(call.result.dims))
    return to.emit("concat", *(to.reshape(part, one) for part in call["tensors"]), axis=axis)


def _full(*arguments: str, value: float | None = None) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        for name in arguments:
            call[name]
        given = call["fill_value"] if value is None else value
        if not isinstance(given, bool | int | float):
            call.refuse("a fill_value that is no number")
        return to.constant(given, call.result.dtype, call.result.dims)

    return rule


def _scalar_tensor(call: Call, to: Builder) -> Value:
    return to.scalar(call["s"], call.result.dtype)


def _arange(call: Call, to: Builder) -> Value:
    call["end"]
    dtype = call.result.dtype
    y = to.declare("iota", call.result.dims, dtype, axis=0)
    step = call["step"] if "step" in call else 1  # noqa: SIM401
    start = call["start"] if "start" in call else 0  # noqa: SIM401
    y = y if step == 1 else to.emit("mul", y, to.scalar(step, dtype))
    return y if isinstance(start, int) and start == 0 else to.emit("add", y, to.scalar(start, dtype))


def _triangle(kind: str) -> Rule:
    """tril keeps columns up to row + diagonal, triu those from there on."""

    def rule(call: Call, to: Builder) -> Value:
        x, diagonal = call.tensor("self"), int(call["diagonal"])
        keep = to.triangle(x.type.dims[-2:], kind, diagonal)
        return to.emit("select", keep, x, to.constant(0, x.type.dtype))

    return rule


def _embedding(call: Call, to: Builder) -> Value:
    return to.emit("gather", call.tensor("weight"), call.tensor("indices"), axis=0)


def _index_select(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    return to.emit("gather", x, call.tensor("index"), axis=call.axis("dim", x.type.rank))


def _index(call: Call, to: Builder) -> Value:
    """x[i, j, ..]: index tensors at neighbouring dimensions, which broadcast together."""
    x, indices = call.tensor("self"), list(call["indices"])
    used = [axis for axis, index in enumerate(indices) if index is not None]
    if used != list(range(used[0], used[0] + len(used))):
        call.refuse("index tensors that are not neighbours")
    tensors = [indices[axis] for axis in used]
    if any(tensor.type.dtype not in (DType.I64, DType.I32) for tensor in tensors):
        call.refuse("a mask as index: how many it selects is not known")
    first, dims = used[0], x.type.dims
    flat: Value | None = None
    for axis, tensor in zip(used, tensors, strict=True):
        inside = _not_negative(to, to.cast(tensor, DType.I64), dims[axis]) if len(used) > 1 else tensor
        size = to.scalar(0, DType.I64) if flat is None else _size(to, dims[axis])
        flat = inside if flat is None else to.emit("add", to.emit("mul", flat, size), inside)
    assert flat is not None
    joined = (*dims[:first], to.product(dims[axis] for axis in used), *dims[first + len(used) :])
    return to.emit("gather", to.reshape(x, joined), flat, axis=first)


def _not_negative(to: Builder, index: Value, extent: Extent) -> Value:
    """Indices that count from the end, counted from the front."""
    low = to.emit("less", index, to.constant(0, DType.I64))
    return to.emit("select", low, to.emit("add", index, _size(to, extent)), index)


def _size(to: Builder, extent: Extent) -> Value:
    return to.constant(extent, DType.I64) if isinstance(extent, int) else to.emit("size", dim=extent.name)


SHAPES: dict[str, Rule] = dict(
    [
        *rows(_reshape("size"), "view", "_unsafe_view"),
        *rows(_reshape("shape"), "reshape"),
        *rows(_reshape("dim"), "unsqueeze", "squeeze.dim", "squeeze.dims"),
        *rows(_reshape(), "squeeze"),
        *rows(_reshape("start_dim", "end_dim"), "flatten.using_ints"),
        *rows(_expand, "expand"),
        *rows(_permute, "permute"),
        *rows(_transpose, "transpose.int"),
        *rows(_matrix_transpose, "t", "numpy_T"),
        *rows(_slice, "slice.Tensor"),
        *rows(_select, "select.int"),
        *rows(_split, "split.Tensor", "split_with_sizes", "split.sizes", "chunk"),
        *rows(_cat, "cat"),
        *rows(_diff, "diff"),
        *rows(_stack, "stack"),
        *rows(_repeat_interleave, "repeat_interleave.self_int"),
        *rows(_full("size"), "full"),
        *rows(_full("self"), "full_like"),
        *rows(_full("size", value=0), "zeros"),
        *rows(_full("size", value=1), "ones"),
        *rows(_full("self", value=0), "zeros_like"),
        *rows(_full("self", value=1), "ones_like"),
        *rows(_full("self", "size", value=0), "new_zeros"),
        *rows(_full("self", "size", value=1), "new_ones"),
        *rows(_full("self", "size"), "new_full"),
        *rows(_scalar_tensor, "scalar_tensor"),
        *rows(_arange, "arange", "arange.start", "arange.start_step"),
        *rows(_triangle("less_equal"), "tril"),
        *rows(_triangle("greater_equal"), "triu"),
        *rows(_embedding, "embedding"),
        *rows(_index_select, "index_select"),
        *rows(_index, "index.Tensor"),
    ]
)  # fmt: skip
