"""What a register of a step names."""

from __future__ import annotations

from dataclasses import dataclass

from unsay.compiler.codegen.builder import Value
from unsay.isa.formats import DType, activation_bytes
from unsay.isa.opcodes import Dim0


@dataclass(frozen=True, slots=True)
class Tensor:
    """`address` is of the step; `stride` elements between rows; `offset` in GLOBAL, None if it is elsewhere."""

    dtype: DType
    dims: tuple[int, ...]
    count: Dim0
    address: Value
    stride: int
    offset: int | None

    @property
    def capacity(self) -> int:
        """Rows there is room for."""
        return self.dims[0]

    def overlaps(self, other: Tensor) -> bool:
        """Whether two activations share bytes of GLOBAL."""
        if self.offset is None or other.offset is None:
            return False
        return self.offset < other.offset + other._num_bytes and other.offset < self.offset + self._num_bytes

    @property
    def _num_bytes(self) -> int:
        return activation_bytes(self.dtype, *self.dims)
