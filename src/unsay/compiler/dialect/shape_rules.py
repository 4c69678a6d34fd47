"""What the shape rules of tensor operations share: broadcasting, axes, and saying what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from unsay.compiler.ir.dims import Dim, Extent, same
from unsay.compiler.ir.types import FLOATS, INTEGERS, ROW, TensorType, dtype_name
from unsay.errors import IrError
from unsay.isa.formats import DType

Types: TypeAlias = Sequence[TensorType]
Attributes: TypeAlias = Mapping[str, Any]
Dims: TypeAlias = Mapping[str, Dim]
Result: TypeAlias = tuple[TensorType, ...]

NUMBERS = FLOATS | INTEGERS
ANY = NUMBERS | {DType.BOOL}


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front; raises IrError unless it is one of a tensor of this rank."""
    need(-rank <= axis < rank, "axis {} is not one of {} dimensions", axis, rank)
    return axis % rank


def axes_of(axes: Sequence[int], rank: int) -> set[int]:
    """Some axes counted from the front, each once."""
    counted = {axis_of(axis, rank) for axis in axes}
    need(len(counted) == len(axes) > 0, "axes must be some and each once, got {}", list(axes))
    return counted


def broadcast(types: Types) -> TensorType:
    first = together(types)
    for other in types:
        need(other.dtype == first.dtype, "operands must be of one element type, got {} and {}", first, other)
    return replace(first, dims=common_shape([other.dims for other in types]))


def common_shape(shapes: Iterable[tuple[Extent, ...]]) -> tuple[Extent, ...]:
    """The shape several broadcast to."""
    result: tuple[Extent, ...] = ()
    for shape in shapes:
        short, long = sorted((result, shape), key=len)
        aligned = (*(1 for _ in range(len(long) - len(short))), *short)
        for a, b in zip(aligned, long, strict=True):
            if not (a == 1 or b == 1 or same(a, b)):
                raise IrError(f"[{shape_text(result)}] and [{shape_text(shape)}] do not broadcast")
        result = tuple(b if a == 1 else a for a, b in zip(aligned, long, strict=True))
    return result


def together(types: Types) -> TensorType:
    """The operand whose layout and device the result has: all are alike, but for scalars."""
    main = next((x for x in types if x.rank), types[0])
    for other in types:
        fits = other.rank == 0 or other.layout == main.layout
        need(fits, "operands must be in one layout, got {} and {}", main, other)
    return on_one_device((main, *types))


def on_one_device(types: Types) -> TensorType:
    first = types[0]
    for other in types:
        need(other.device == first.device, "operands must be on one device, got {} and {}", first, other)
    return first


def need_row(x: TensorType) -> None:
    need(x.layout == ROW, "x must be in row layout, got {}", x)


def need_dtype(x: TensorType, dtypes: Iterable[DType], role: str) -> None:
    need(x.dtype in dtypes, "{} must be of {}, got {}", role, _Names(dtypes), x)


class _Names:
    """Names of element types, made only when they are printed."""

    def __init__(self, dtypes: Iterable[DType]) -> None:
        self._dtypes = dtypes

    def __str__(self) -> str:
        return ", ".join(map(dtype_name, sorted(self._dtypes)))


def put(x: TensorType, axis: int, extent: Extent) -> TensorType:
    return replace(x, dims=(*x.dims[:axis], extent, *x.dims[axis + 1 :]))


def without(x: TensorType, axes: set[int]) -> TensorType:
    return replace(x, dims=tuple(extent for index, extent in enumerate(x.dims) if index not in axes))


def extent_name(extent: Extent) -> str:
    return extent.name if isinstance(extent, Dim) else str(extent)


def shape_text(shape: Iterable[Extent]) -> str:
    return " x ".join(map(extent_name, shape))


def need(fits: bool, message: str, *values: object) -> None:
    """The message is formatted only when it is raised: rules run thousands of times, and rarely fail."""
    if not fits:
        raise IrError(message.format(*values))
