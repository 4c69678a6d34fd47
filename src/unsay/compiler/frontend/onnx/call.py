"""One node as its rule sees it: inputs as items, values or sizes, attributes by type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.onnx.builder import Builder, Item, Known
from unsay.compiler.frontend.onnx.parse import MAX_EXTENT, Node
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError, Size, size_of
from unsay.compiler.frontend.onnx.tensors import dtype_of
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType

MAX_KNOWN = 1 << 16
"""Elements of an array the importer computes with."""


class Call:
    """One node: its inputs as items or values, its attributes by type. RefusalError where they are not as needed."""

    def __init__(self, builder: Builder, node: Node, opset: int) -> None:
        self.builder = builder
        self.node = node
        self.opset = opset

    def has(self, index: int) -> bool:
        """Whether the input is there."""
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def item(self, index: int) -> Item:
        """An input that must be there."""
        if not self.has(index):
            raise RefusalError(f"input {index} is missing")
        return self.builder.items[self.node.inputs[index]]

    def value(self, index: int) -> Value:
        """An input as a value of the graph."""
        return self.builder.lift(self.item(index))

    def values(self) -> list[Value]:
        """All inputs."""
        return [self.value(index) for index in range(len(self.node.inputs))]

    def known(self, index: int) -> NDArray[Any]:
        """An input that the importer must have in hand."""
        item = self.item(index)
        if isinstance(item, Known) and item.array.size <= MAX_KNOWN and item.dtype is not DType.BF16:
            return item.array
        raise RefusalError(f"input {index} must be a constant, or computed from shapes; it is data")

    def sizes(self, index: int) -> list[AnySize]:
        """An input that is a list of sizes."""
        array = self.known(index)
        if array.ndim > 1 or array.dtype.kind not in "iuO":
            raise RefusalError(f"input {index} must be a list of integers, it is {list(array.shape)} {array.dtype}")
        return [element if isinstance(element, Size) else int(element) for element in np.atleast_1d(array).tolist()]

    def size(self, index: int) -> AnySize:
        """An input that is one size."""
        sizes = self.sizes(index)
        if len(sizes) != 1:
            raise RefusalError(f"input {index} must be one integer, it is {sizes}")
        return sizes[0]

    def numbers(self, index: int) -> list[int]:
        """An input that is a list of plain integers."""
        return [_plain(element, index) for element in self.sizes(index)]

    def shape(self, index: int) -> list[AnySize]:
        """The sizes of an input's dimensions."""
        item = self.item(index)
        return self.sizes_of(item) if isinstance(item, Value) else list(item.array.shape)

    @staticmethod
    def sizes_of(x: Value) -> list[AnySize]:
        """The sizes of a value's dimensions."""
        return [size_of(dim) for dim in x.type.dims]

    def is_empty(self, index: int) -> bool:
        """Whether an input has no elements at all."""
        return any(isinstance(size, int) and size == 0 for size in self.shape(index))

    def dtype(self, index: int) -> DType:
        """An input's element type."""
        item = self.item(index)
        return item.type.dtype if isinstance(item, Value) else item.dtype

    def int(self, name: str, default: int) -> int:
        """An integer attribute."""
        return self._attribute(name, default, int)

    def flag(self, name: str, default: bool = False) -> bool:
        """An attribute that is 0 or 1."""
        value = self.int(name, int(default))
        if value not in (0, 1):
            raise RefusalError(f"attribute {name} = {value} must be 0 or 1")
        return value == 1

    def float(self, name: str, default: float) -> float:
        """A float attribute."""
        value = float(self._attribute(name, default, float))
        if not math.isfinite(value):
            raise RefusalError(f"attribute {name} = {value}")
        return value

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        return self._attribute(name, default, str)

    def ints(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list of integers; an empty one of floats is the same on the wire."""
        value = self.node.attributes.get(name, tuple(default))
        if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
            raise RefusalError(f"attribute {name} = {str(value)[:60]} must be integers")
        if any(abs(item) > MAX_EXTENT for item in value if isinstance(item, int)):
            raise RefusalError(f"attribute {name} = {str(value)[:60]} has more than 2^31")
        return value  # pyright: ignore[reportReturnType]

    def dtype_attribute(self, name: str, default: int) -> DType:
        """An element type given by its ONNX code."""
        return dtype_of(self.int(name, default))

    def _attribute(self, name: str, default: Any, kind: type) -> Any:
        value = self.node.attributes.get(name, default)
        if type(value) is not kind:
            raise RefusalError(f"attribute {name} = {str(value)[:60]} must be of {kind.__name__}")
        return value


def axis_of(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise RefusalError(f"axis {axis} of a tensor with {rank} dimensions")
    return axis % max(rank, 1)


def fixed(sizes: list[AnySize]) -> tuple[int, ...]:
    """Sizes that must be numbers."""
    if not all(isinstance(size, int) for size in sizes):
        raise RefusalError(f"sizes {sizes} that must be numbers")
    return tuple(sizes)  # pyright: ignore[reportReturnType]


def _plain(element: AnySize, index: int) -> int:
    if isinstance(element, Size):
        raise RefusalError(f"input {index} must be numbers, it has {element}")
    return element
