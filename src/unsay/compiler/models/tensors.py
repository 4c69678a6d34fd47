"""The tensors of a model file as `weight` operations, each checked against the shape its place needs."""

from __future__ import annotations

from collections.abc import Mapping

from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.types import TensorType
from unsay.errors import ModelFileError, UnsupportedError
from unsay.isa.formats import FLOAT_WEIGHTS, DType


class Tensors:
    """Hands out weights by name and remembers which were asked for."""

    def __init__(self, graph: Graph, tensors: Mapping[str, TensorType]) -> None:
        self._graph = graph
        self._tensors = tensors
        self._made: dict[str, Value] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def matrix(self, name: str, num_rows: int, num_columns: int) -> Value:
        """The weight [num_rows, num_columns], in the format of the file."""
        return self._weight(name, TensorType((num_rows, num_columns), self._find(name).dtype))

    def vector(self, name: str, length: int) -> Value:
        """The vector [length]; a half-precision one is read as f32."""
        dtype = self._find(name).dtype
        if dtype not in FLOAT_WEIGHTS:
            raise UnsupportedError(f"tensor {name} is {dtype.name}; a vector must be F32, F16 or BF16")
        return self._weight(name, TensorType((length,), DType.F32))

    def optional_vector(self, name: str, length: int) -> tuple[Value, ...]:
        """The vector, or nothing if the file has none of this name."""
        return (self.vector(name, length),) if name in self else ()

    def check_all_used(self) -> None:
        """Raise UnsupportedError if the file holds a tensor nobody asked for."""
        unused = sorted(self._tensors.keys() - self._made.keys())
        if unused:
            raise UnsupportedError(
                f"tensor {unused[0]} ({len(unused)} in all) has no place in architecture {self._graph.name!r} "
                "as this version knows it; the model would give other answers without it"
            )

    def _find(self, name: str) -> TensorType:
        if name not in self._tensors:
            raise ModelFileError(f"tensor {name} is missing; architecture {self._graph.name!r} needs it")
        return self._tensors[name]

    def _weight(self, name: str, wanted: TensorType) -> Value:
        dims = self._find(name).dims
        if dims != wanted.dims:
            raise ModelFileError(f"tensor {name} has shape {dims}, the model's sizes make it {wanted.dims}")
        if name not in self._made:
            operation = self._graph.add("weight", (), {"tensor": name}, [(name, wanted)])
            self._made[name] = operation.result
        return self._made[name]
