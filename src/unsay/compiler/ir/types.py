"""The types of LLMIR values.

    tensor<T x 576 x f32>                           T is a dimension of the graph, with a range
    tensor<576 x 576 x q4_1, layout = "paired:64">  a weight [N, K]: rows of each head of 64 reordered for RoPE
    tensor<T x 576 x q8w, device = "cpu">           quantised activations (isa/formats.py)

`layout` is how the last dimension of an activation, or the rows of a weight, are ordered:

    row         as the model file has them
    paired:D    head by head of D: 0, D/2, 1, D/2 + 1, ...  so that elements that rotate together are adjacent

A layout is a property of the value, so that a rule that needs two values in the same order can check it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from unsay.isa.formats import DType

ROW = "row"
DEVICES = frozenset({"cpu"})

_PAIRED = re.compile(r"paired:([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Dim:
    """A named dimension, `low <= size <= high`."""

    name: str
    low: int
    high: int


Extent: TypeAlias = int | Dim


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


def paired_head_dim(layout: str) -> int | None:
    """The head size of a paired layout, None for `row`."""
    match = _PAIRED.fullmatch(layout)
    return int(match[1]) if match else None


def is_layout(layout: str) -> bool:
    """Whether the text names a layout."""
    return layout == ROW or paired_head_dim(layout) is not None
