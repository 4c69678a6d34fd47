"""The types of LLMIR values.

    tensor<T x 576 x f32>                           T is a dimension of the graph, with a range (ir/dims.py)
    tensor<576 x 576 x q4_1, layout = "paired:64">  a weight [N, K]: rows of each head of 64 reordered for RoPE
    tensor<T x 576 x q8w, device = "cpu">           quantised activations (isa/formats.py)
    tensor<N x 3 x 32 x 32 x f32, layout = "nhwc">  a picture: dims are N, C, H, W whatever the layout
    tensor<f32>                                     a scalar

`dims` are logical: a layout says how a value lies in memory, never what it is.

    row         the last dimension is adjacent; as the model file has it
    paired:D    the last dimension of an activation, or the rows of a weight, head by head of D:
                0, D/2, 1, D/2 + 1, ...  so that elements that rotate together are adjacent
    nchw        rank 4, as row
    nhwc        rank 4, channels adjacent
    blocked:N   rank 2 and more: dimension 1 in blocks of N, a block innermost: [.., ceil(C/N), .., N]

A layout is a property of the value, so that a rule that needs two values in the same order can check it.
`device` is whose memory holds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from unsay.compiler.ir.dims import Dim, Extent
from unsay.isa.formats import DType

__all__ = ["DEVICES", "DTYPES", "FLOATS", "INTEGERS", "NARROW", "ROW", "Dim", "Extent", "TensorType"]

ROW = "row"
NCHW = "nchw"
NHWC = "nhwc"
DEVICES = frozenset({"cpu", "gpu", "npu"})

FLOATS = frozenset({DType.F32, DType.F16, DType.BF16, DType.F64})
NARROW = frozenset({DType.F16, DType.BF16})
"""Floats that results are rounded to after they were computed in f32."""
INTEGERS = frozenset({DType.I32, DType.I64, DType.I8})

_WITH_NUMBER = re.compile(r"(paired|blocked):([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Shape, element type or quantised format, layout, device."""

    dims: tuple[Extent, ...]
    dtype: DType
    layout: str = ROW
    device: str = "cpu"

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    def of(self, dtype: DType) -> TensorType:
        """The same with other elements."""
        return replace(self, dtype=dtype)

    def __str__(self) -> str:
        """The text form; values left at their default are not written."""
        extents = [dim.name if isinstance(dim, Dim) else str(dim) for dim in self.dims]
        options = "" if self.layout == ROW else f', layout = "{self.layout}"'
        options += "" if self.device == "cpu" else f', device = "{self.device}"'
        return f"tensor<{' x '.join([*extents, dtype_name(self.dtype)])}{options}>"


def dtype_name(dtype: DType) -> str:
    """The name of an element type in text: f32, q4_1, q8a ..."""
    return dtype.name.lower()


DTYPES = {dtype_name(dtype): dtype for dtype in DType}


def paired(head_dim: int) -> str:
    """The layout of rows or columns reordered by heads of `head_dim`."""
    return f"paired:{head_dim}"


def blocked(size: int) -> str:
    """The layout of dimension 1 in blocks of `size`."""
    return f"blocked:{size}"


def paired_head_dim(layout: str) -> int | None:
    """The head size of a paired layout, None for another."""
    return _number(layout, "paired")


def block_size(layout: str) -> int | None:
    """The block of a blocked layout, None for another."""
    return _number(layout, "blocked")


def is_layout(layout: str) -> bool:
    """Whether the text names a layout."""
    return layout in (ROW, NCHW, NHWC) or _WITH_NUMBER.fullmatch(layout) is not None


def fits_layout(tensor_type: TensorType) -> bool:
    """Whether a value of this rank can lie so."""
    if tensor_type.layout in (NCHW, NHWC):
        return tensor_type.rank == 4
    return block_size(tensor_type.layout) is None or tensor_type.rank >= 2


def _number(layout: str, kind: str) -> int | None:
    match = _WITH_NUMBER.fullmatch(layout)
    return int(match[2]) if match and match[1] == kind else None
