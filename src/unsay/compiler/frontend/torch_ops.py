"""What each ATen operation of an exported program is in LLMIR, one row an operation.

A rule gets a `Call` and a `Builder` and returns the value, or a tuple of values. Arguments go by the names of the
operation's own schema, defaults included; one that a rule does not ask for and that is not at its default is a problem,
so none is ignored. Source of the meanings: the schemas and documentation of torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from unsay.compiler.frontend.torch_builder import Builder, common_dtype
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.dims import Extent, same
from unsay.compiler.ir.types import TensorType
from unsay.errors import UnsupportedError
from unsay.isa.formats import DType

_IGNORED = frozenset({
    "copy", "device", "dtype", "implicit", "layout", "memory_format", "non_blocking", "padding_idx", "pin_memory",
    "requires_grad", "scale_grad_by_freq", "sparse",
})  # fmt: skip
"""Where a tensor lies, how it is trained, and element types, which the result's own type tells."""


class Empty:
    """A tensor without elements: LLMIR has none. Programs make them where a slice leaves nothing, and join them."""


class Call:
    """One use of an operation: `result` is the type torch states, of the first result if there are several."""

    def __init__(
        self, name: str, arguments: Mapping[str, Any], defaults: Mapping[str, Any], results: Sequence[TensorType]
    ):
        self.name = name
        self.results = results
        self._arguments = arguments
        self._defaults = defaults
        self._read = set(_IGNORED)

    @property
    def result(self) -> TensorType:
        """Type of the only or first result."""
        return self.results[0]

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._arguments[name] if name in self._arguments else self._defaults[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arguments or name in self._defaults

    def tensor(self, name: str) -> Value:
        """An argument that is a tensor."""
        value = self[name]
        return value if isinstance(value, Value) else self.refuse(f"{name} that is no tensor, or an empty one")

    def axis(self, name: str, rank: int) -> int:
        """An argument that is a dimension, from the front."""
        return int(self[name]) % max(rank, 1)

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """An argument that is some dimensions; all where there are none."""
        given = self[name]
        given = [given] if isinstance(given, int) else given
        return tuple(axis % rank for axis in given) if given else tuple(range(rank))

    def need(self, name: str, *allowed: object) -> None:
        """An argument of which only these values are built in."""
        if self[name] not in allowed:
            self.refuse(f"{name} = {self[name]!r}")

    def check_all_read(self) -> None:
        """Refuse an argument nobody asked for."""
        for name, value in self._arguments.items():
            if name not in self._read and value is not self._defaults.get(name) and value != self._defaults.get(name):
                self.refuse(f"{name} = {str(value)[:40]}")

    def refuse(self, what: str) -> Any:
        """Raise UnsupportedError."""
        raise UnsupportedError(f"{self.name} with {what}")


Rule: TypeAlias = Callable[[Call, Builder], Any]


def _unary(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        return to.emit(kind, to.cast(call.tensor("self"), call.result.dtype))

    return rule


def _binary(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        dtype = call.result.dtype
        a, b = to.operand(call["self"], dtype), to.operand(call["other"], dtype)
        if "alpha" in call and call["alpha"] != 1:
            b = to.emit("mul", to.scalar(call["alpha"], dtype), b)
        return to.emit(kind, b, a) if call.name.startswith("aten.rsub") else to.emit(kind, a, b)

    return rule


def _compare(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        dtype = common_dtype([call["self"], call["other"]])
        y = to.emit(kind, to.operand(call["self"], dtype), to.operand(call["other"], dtype))
        return to.emit("not", y) if call.name.startswith("aten.ne.") else y

    return rule


def _logical(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        if call.result.dtype is not DType.BOOL:
            call.refuse("integers")
        return to.emit(kind, to.operand(call["self"], DType.BOOL), to.operand(call["other"], DType.BOOL))

    return rule


def _not(call: Call, to: Builder) -> Value:
    if call.result.dtype is not DType.BOOL:
        call.refuse("integers")
    return to.emit("not", to.cast(call.tensor("self"), DType.BOOL))


def _pow(call: Call, to: Builder) -> Value:
    dtype, exponent = call.result.dtype, call["exponent"]
    base = to.operand(call["self"], dtype)
    if isinstance(exponent, int | float) and exponent == 2:
        return to.emit("mul", base, base)
    return to.emit("pow", base, to.operand(exponent, dtype))


def _gelu(call: Call, to: Builder) -> Value:
    return to.emit("gelu", call.tensor("self"), approximate=call["approximate"])


def _clamp(call: Call, to: Builder) -> Value:
    x = to.cast(call.tensor("self"), call.result.dtype)
    for name, kind in (("min", "maximum"), ("max", "minimum")):
        if call[name] is not None:
            x = to.emit(kind, x, to.operand(call[name], call.result.dtype))
    return x


def _same(call: Call, to: Builder) -> Value:
    """The same value, maybe in another element type."""
    x = call.tensor("input" if "input" in call else "self")
    return to.cast(x, call.result.dtype)


def _type_as(call: Call, to: Builder) -> Value:
    call["other"]
    return _same(call, to)


def _dropout(call: Call, to: Builder) -> Value:
    trains, probability = call["train"], call["p"]
    if trains and probability != 0:
        call.refuse("training: export the model after .eval()")
    return _same(call, to)


def _where(call: Call, to: Builder) -> Value:
    a, b = (to.operand(call[name], call.result.dtype) for name in ("self", "other"))
    return to.emit("select", call.tensor("condition"), a, b)


def _masked_fill(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    return to.emit("select", call.tensor("mask"), to.operand(call["value"], x.type.dtype), x)


# shapes


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


# making


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
        keep = _columns_against_rows(to, x.type.dims[-2:], kind, diagonal)
        return to.emit("select", keep, x, to.constant(0, x.type.dtype))

    return rule


def _columns_against_rows(to: Builder, dims: Sequence[Extent], kind: str, diagonal: int) -> Value:
    """bool [rows, columns]: column `kind` row + diagonal."""
    row, column = (to.declare("iota", dims, DType.I64, axis=axis) for axis in (0, 1))
    return to.emit(kind, column, row if diagonal == 0 else to.emit("add", row, to.constant(diagonal, DType.I64)))


# reductions


def _reduce(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        x = to.cast(call.tensor("self"), call.result.dtype)
        axes = call.axes("dim", x.type.rank) if "dim" in call else tuple(range(x.type.rank))
        keepdims = bool(call["keepdim"]) if "keepdim" in call else False
        return to.emit(kind, x, axes=axes, keepdims=keepdims)

    return rule


def _any(call: Call, to: Builder) -> Value:
    """Whether any is true; all: the same of the least instead of the greatest."""
    x = to.cast(to.cast(call.tensor("self"), DType.BOOL), DType.I32)
    axes = call.axes("dim", x.type.rank) if "dim" in call else tuple(range(x.type.rank))
    keepdims = bool(call["keepdim"]) if "keepdim" in call else False
    kind = "reduce_max" if call.name.startswith("aten.any") else "reduce_min"
    return to.cast(to.emit(kind, x, axes=axes, keepdims=keepdims), DType.BOOL)


def _argmax(call: Call, to: Builder) -> Value:
    x, dim = call.tensor("self"), call["dim"]
    if dim is None:
        call.refuse("no dim")
    y = to.emit("argmax", x, axis=call.axis("dim", x.type.rank))
    return to.reshape(y, call.result.dims) if call["keepdim"] else y


def _softmax(call: Call, to: Builder) -> Value:
    if "half_to_float" in call:
        call["half_to_float"]
    x = to.cast(call.tensor("self"), call.result.dtype)
    return to.emit("softmax", x, axis=call.axis("dim", x.type.rank))


def _cumsum(call: Call, to: Builder) -> Value:
    x = to.cast(call.tensor("self"), call.result.dtype)
    return to.emit("cumsum", x, axis=call.axis("dim", x.type.rank))


# products


def _matmul(call: Call, to: Builder) -> Value:
    return to.emit("matmul", call.tensor("self"), call.tensor("mat2" if "mat2" in call else "other"))


def _linear(call: Call, to: Builder) -> Value:
    y = to.emit("matmul", call.tensor("input"), to.transpose(call.tensor("weight"), [1, 0]))
    return y if call["bias"] is None else to.emit("add", y, call.tensor("bias"))


def _addmm(call: Call, to: Builder) -> Value:
    call.need("beta", 1)
    call.need("alpha", 1)
    return to.emit("add", call.tensor("self"), to.emit("matmul", call.tensor("mat1"), call.tensor("mat2")))


def _sdpa(call: Call, to: Builder) -> Value:
    call.need("dropout_p", 0.0)
    q, k, v = (call.tensor(name) for name in ("query", "key", "value"))
    if call["enable_gqa"]:
        k, v = (_repeat_heads(to, x, q.type.dims[-3]) for x in (k, v))
    mask, scale = call["attn_mask"], call["scale"]
    if call["is_causal"]:
        mask = _columns_against_rows(to, (q.type.dims[-2], k.type.dims[-2]), "less_equal", 0)
    if scale is None:
        width = q.type.dims[-1]
        scale = 1 / math.sqrt(width) if isinstance(width, int) else call.refuse("heads of unknown size")
    return to.emit("sdpa", q, k, v, *([] if mask is None else [mask]), scale=float(scale))


def _repeat_heads(to: Builder, x: Value, num_heads: Extent) -> Value:
    """[.., K, S, D] -> [.., H, S, D]: each head H/K times in a row."""
    *batch, kv_heads, rows, width = x.type.dims
    if not isinstance(num_heads, int) or not isinstance(kv_heads, int):
        raise UnsupportedError("scaled_dot_product_attention with a number of heads that is not fixed")
    wide = to.reshape(x, (*batch, kv_heads, 1, rows, width))
    wide = to.broadcast(wide, (*batch, kv_heads, num_heads // kv_heads, rows, width))
    return to.reshape(wide, (*batch, num_heads, rows, width))


def _layer_norm(call: Call, to: Builder) -> Value:
    """Over the last dimension: (x - mean) / sqrt(var + eps) * weight + bias; rms_norm without mean and bias."""
    x, axes = call.tensor("input"), (-1,)
    if len(call["normalized_shape"]) != 1:
        call.refuse(f"normalized_shape {call['normalized_shape']}")
    if "cudnn_enable" in call:
        call["cudnn_enable"]
        x = to.emit("sub", x, to.emit("reduce_mean", x, axes=axes, keepdims=True))
    square = to.emit("reduce_mean", to.emit("mul", x, x), axes=axes, keepdims=True)
    eps = 2.0**-23 if call["eps"] is None else float(call["eps"])
    y = to.emit("mul", x, to.emit("rsqrt", to.emit("add", square, to.constant(eps, x.type.dtype))))
    for name, kind in (("weight", "mul"), ("bias", "add")):
        if name in call and call[name] is not None:
            y = to.emit(kind, y, call.tensor(name))
    return y


# looking up


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


def _nothing(call: Call, _to: Builder) -> None:
    """A check torch makes while it runs, of what its types say already."""
    for name in ("a", "size", "stride"):
        if name in call:
            call[name]


def _rows(rule: Rule, *names: str) -> Iterable[tuple[str, Rule]]:
    return ((f"aten.{name}" if "." in name else f"aten.{name}.default", rule) for name in names)


RULES: dict[str, Rule] = dict(
    [
        *((f"aten.{name}.default", _unary(name)) for name in (
            "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "sigmoid", "relu",
            "silu", "floor",
        )),
        *_rows(_gelu, "gelu"),
        *_rows(_clamp, "clamp", "clamp.Tensor", "clamp_min", "clamp_max"),
        *_rows(_binary("add"), "add.Tensor", "add.Scalar"),
        *_rows(_binary("sub"), "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar"),
        *_rows(_binary("mul"), "mul.Tensor", "mul.Scalar"),
        *_rows(_binary("div"), "div.Tensor", "div.Scalar"),
        *_rows(_binary("maximum"), "maximum"),
        *_rows(_binary("minimum"), "minimum"),
        *_rows(_pow, "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
        *_rows(_compare("equal"), "eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar"),
        *_rows(_compare("less"), "lt.Tensor", "lt.Scalar"),
        *_rows(_compare("less_equal"), "le.Tensor", "le.Scalar"),
        *_rows(_compare("greater"), "gt.Tensor", "gt.Scalar"),
        *_rows(_compare("greater_equal"), "ge.Tensor", "ge.Scalar"),
        *_rows(_logical("and"), "logical_and", "bitwise_and.Tensor", "__and__.Tensor"),
        *_rows(_logical("or"), "logical_or", "bitwise_or.Tensor", "__or__.Tensor"),
        *_rows(_not, "logical_not", "bitwise_not"),
        *_rows(_where, "where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"),
        *_rows(_masked_fill, "masked_fill.Scalar", "masked_fill.Tensor"),
        *_rows(_same, "_to_copy", "to.dtype", "to.dtype_layout", "to.device", "clone", "contiguous", "alias", "detach",
               "detach_", "lift_fresh_copy"),
        *_rows(_type_as, "type_as", "to.other"),
        *_rows(_dropout, "dropout"),
        *_rows(_nothing, "_assert_tensor_metadata"),
        *_rows(_reshape("size"), "view", "_unsafe_view"),
        *_rows(_reshape("shape"), "reshape"),
        *_rows(_reshape("dim"), "unsqueeze", "squeeze.dim", "squeeze.dims"),
        *_rows(_reshape(), "squeeze"),
        *_rows(_reshape("start_dim", "end_dim"), "flatten.using_ints"),
        *_rows(_expand, "expand"),
        *_rows(_permute, "permute"),
        *_rows(_transpose, "transpose.int"),
        *_rows(_matrix_transpose, "t", "numpy_T"),
        *_rows(_slice, "slice.Tensor"),
        *_rows(_select, "select.int"),
        *_rows(_split, "split.Tensor", "split_with_sizes", "split.sizes", "chunk"),
        *_rows(_cat, "cat"),
        *_rows(_diff, "diff"),
        *_rows(_stack, "stack"),
        *_rows(_repeat_interleave, "repeat_interleave.self_int"),
        *_rows(_full("size"), "full"),
        *_rows(_full("self"), "full_like"),
        *_rows(_full("size", value=0), "zeros"),
        *_rows(_full("size", value=1), "ones"),
        *_rows(_full("self", value=0), "zeros_like"),
        *_rows(_full("self", value=1), "ones_like"),
        *_rows(_full("self", "size", value=0), "new_zeros"),
        *_rows(_full("self", "size", value=1), "new_ones"),
        *_rows(_full("self", "size"), "new_full"),
        *_rows(_scalar_tensor, "scalar_tensor"),
        *_rows(_arange, "arange", "arange.start", "arange.start_step"),
        *_rows(_triangle("less_equal"), "tril"),
        *_rows(_triangle("greater_equal"), "triu"),
        *_rows(_reduce("reduce_mean"), "mean", "mean.dim"),
        *_rows(_reduce("reduce_sum"), "sum", "sum.dim_IntList"),
        *_rows(_reduce("reduce_max"), "amax", "max"),
        *_rows(_reduce("reduce_min"), "amin", "min"),
        *_rows(_any, "any", "any.dim", "any.dims", "all", "all.dim", "all.dims"),
        *_rows(_argmax, "argmax"),
        *_rows(_softmax, "softmax.int", "_softmax", "_safe_softmax"),
        *_rows(_cumsum, "cumsum"),
        *_rows(_matmul, "matmul", "mm", "bmm"),
        *_rows(_linear, "linear"),
        *_rows(_addmm, "addmm"),
        *_rows(_sdpa, "scaled_dot_product_attention"),
        *_rows(_layer_norm, "layer_norm", "rms_norm"),
        *_rows(_embedding, "embedding"),
        *_rows(_index_select, "index_select"),
        *_rows(_index, "index.Tensor"),
    ]
)  # fmt: skip
