"""Nodes whose operands are all in hand: sizes, and the small constants exporters compute them from.

Only integers, bools and single floats are folded: whole weights stay what the file has. Arrays hold Python integers and
Sizes as objects where a size is not a number, so NumPy's own operators do the arithmetic of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.onnx.builder import Known
from unsay.compiler.frontend.onnx.call import Call, axis_of
from unsay.compiler.frontend.onnx.parse import Tensor
from unsay.compiler.frontend.onnx.sizes import RefusalError, Size
from unsay.compiler.frontend.onnx.tensors import NUMPY
from unsay.compiler.ir.types import FLOATS
from unsay.isa.formats import DType

MAX_FOLDED = 1 << 12

Array: TypeAlias = NDArray[Any]
Fold: TypeAlias = Callable[[Call, list[Array]], Array]


class _NotHereError(Exception):
    """The result is for the node's rule: too large, or of a size that is not a number."""


def fold(call: Call) -> Known | None:
    """The result if the node can be computed here, else None."""
    compute = _FOLDS.get(call.node.kind)
    items = [call.item(index) if name else None for index, name in enumerate(call.node.inputs)]
    arrays = [item.array for item in items if isinstance(item, Known) and _is_small(item)]
    if compute is None or len(arrays) != len(items) or not items or not _is_exact(call.node.kind, arrays):
        return None
    dtype = _result_type(call)
    try:
        with np.errstate(all="ignore"):
            array = np.asarray(compute(call, arrays))
            made = array if _is_symbolic(array) else array.astype(NUMPY[dtype])
    except (ValueError, IndexError, OverflowError, TypeError) as error:
        raise RefusalError(f"constants that do not fit together: {error}") from error
    except _NotHereError:
        return None
    return None if made.size > MAX_FOLDED else Known(made, dtype)


def _is_small(known: Known) -> bool:
    if known.dtype in FLOATS:
        return known.array.size == 1 and known.dtype is not DType.BF16
    return known.array.size <= MAX_FOLDED


def _is_exact(kind: str, arrays: list[Array]) -> bool:
    """Whether sizes that are no numbers stay formulas: half a size, or its root, is data for the node's rule."""
    if not any(_is_symbolic(array) for array in arrays):
        return True
    whole = all(array.dtype.kind != "f" or np.all(np.floor(array) == array) for array in arrays)
    return whole and kind not in ("And", "Ceil", "Floor", "Not", "Or", "Pow", "Reciprocal", "Sqrt")


def _is_symbolic(array: Array) -> bool:
    return array.dtype == object and any(isinstance(element, Size) for element in array.ravel())


def _result_type(call: Call) -> DType:
    kind = call.node.kind
    if kind in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Not", "And", "Or"):
        return DType.BOOL
    if kind == "Cast":
        return call.dtype_attribute("to", 1)
    if kind == "ConstantOfShape":
        return fill(call)[1]
    if kind in ("Shape", "Size"):
        return DType.I64
    return call.dtype(1 if kind == "Where" else 0)


def _cast(call: Call, arrays: list[Array]) -> Array:
    (array,) = arrays
    if _is_symbolic(array):
        if call.dtype_attribute("to", 1) in (DType.I64, DType.I32, DType.F32):
            return array
        raise RefusalError("a size that is not a number, as " + call.dtype_attribute("to", 1).name.lower())
    return array.astype(NUMPY[call.dtype_attribute("to", 1)])


def _divide(_call: Call, arrays: list[Array]) -> Array:
    """Integers towards zero; sizes are never negative."""
    a, b = arrays
    if a.dtype.kind == "f":
        return a / b
    if not _is_symbolic(b) and not np.all(b):
        raise RefusalError("a division of integers by 0")
    if _is_symbolic(a) or _is_symbolic(b):
        return a.astype(object) // b.astype(object)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _gather(call: Call, arrays: list[Array]) -> Array:
    data, indices = arrays
    axis = axis_of(call.int("axis", 0), data.ndim)
    positions = indices.astype(np.int64)
    if data.ndim == 0 or np.any(positions < -data.shape[axis]) or np.any(positions >= data.shape[axis]):
        raise RefusalError(f"indices outside a dimension of {data.shape[axis] if data.ndim else 0}")
    return np.take(data, positions, axis)


def _slice(call: Call, arrays: list[Array]) -> Array:
    data = arrays[0]
    starts, ends = call.numbers(1), call.numbers(2)
    axes = call.numbers(3) if call.has(3) else list(range(len(starts)))
    steps = call.numbers(4) if call.has(4) else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise RefusalError("starts, ends, axes and steps do not fit together")
    index = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        stop = None if step < 0 and end <= -data.shape[axis_of(axis, data.ndim)] - 1 else end
        index[axis_of(axis, data.ndim)] = slice(start, stop, step)
    return data[tuple(index)]


def _concat(call: Call, arrays: list[Array]) -> Array:
    return np.concatenate(arrays, axis_of(call.int("axis", 0), arrays[0].ndim))


def _reshape(call: Call, arrays: list[Array]) -> Array:
    shape = call.numbers(1)
    kept = not call.flag("allowzero")
    return arrays[0].reshape([arrays[0].shape[i] if size == 0 and kept else size for i, size in enumerate(shape)])


def _squeeze(call: Call, arrays: list[Array]) -> Array:
    if not call.has(1):
        return np.squeeze(arrays[0])
    return np.squeeze(arrays[0], tuple(axis_of(axis, arrays[0].ndim) for axis in call.numbers(1)))


def _unsqueeze(call: Call, arrays: list[Array]) -> Array:
    axes = call.numbers(1)
    return np.expand_dims(arrays[0], tuple(axis_of(axis, arrays[0].ndim + len(axes)) for axis in axes))


def _range(call: Call, arrays: list[Array]) -> Array:
    """Few enough numbers to have in hand; more, and ranges up to a size, are left to the rule."""
    start, limit, delta = (array.item() for array in arrays)
    if any(isinstance(element, Size) for element in (start, limit, delta)) or not delta:
        raise _NotHereError
    length = max(0, -((start - limit) // delta) if delta > 0 else -((limit - start) // -delta))
    if length > MAX_FOLDED:
        raise _NotHereError
    return start + delta * np.arange(int(length))


def _where(_call: Call, arrays: list[Array]) -> Array:
    return np.where(arrays[0].astype(bool), arrays[1], arrays[2])


def _expand(call: Call, arrays: list[Array]) -> Array:
    shape = call.numbers(1)
    if np.prod(shape, dtype=np.float64) > MAX_FOLDED:
        raise _NotHereError
    return np.broadcast_to(arrays[0], np.broadcast_shapes(arrays[0].shape, tuple(shape)))


def _reduce_prod(call: Call, arrays: list[Array]) -> Array:
    axes = tuple(call.numbers(1)) if call.has(1) else None
    return np.multiply.reduce(arrays[0], axis=axes, keepdims=call.flag("keepdims", True))


def fill(call: Call) -> tuple[Array, DType]:
    """What a ConstantOfShape repeats, as an array of one element; float 0 if it does not say."""
    value = call.node.attributes.get("value", Tensor(DType.F32, np.zeros(1, np.float32)))
    if not isinstance(value, Tensor) or value.array.size != 1:
        raise RefusalError("value must be a tensor of one element")
    return value.array.reshape(1), value.dtype


def _constant_of_shape(call: Call, arrays: list[Array]) -> Array:
    sizes = call.sizes(0)
    if any(isinstance(size, Size) for size in sizes) or np.prod(call.numbers(0), dtype=np.float64) > MAX_FOLDED:
        raise _NotHereError
    return np.full(call.numbers(0), fill(call)[0][0])


def _with(operator: Callable[..., Any]) -> Fold:
    return lambda _call, arrays: operator(*arrays)


_FOLDS: dict[str, Fold] = {
    "Add": _with(np.add),
    "And": _with(np.logical_and),
    "Cast": _cast,
    "Ceil": _with(np.ceil),
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _with(np.equal),
    "Expand": _expand,
    "Floor": _with(np.floor),
    "Gather": _gather,
    "Greater": _with(np.greater),
    "GreaterOrEqual": _with(np.greater_equal),
    "Less": _with(np.less),
    "LessOrEqual": _with(np.less_equal),
    "Max": lambda _call, arrays: np.maximum.reduce(np.broadcast_arrays(*arrays)),
    "Min": lambda _call, arrays: np.minimum.reduce(np.broadcast_arrays(*arrays)),
    "Mul": _with(np.multiply),
    "Neg": _with(np.negative),
    "Not": _with(np.logical_not),
    "Or": _with(np.logical_or),
    "Pow": _with(np.power),
    "Range": _range,
    "Reciprocal": _with(np.reciprocal),
    "ReduceProd": _reduce_prod,
    "Reshape": _reshape,
    "Slice": _slice,
    "Sqrt": _with(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _with(np.subtract),
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""An operator here has a rule as well, for operands that are not in hand."""
