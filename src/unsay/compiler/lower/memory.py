"""Where every tensor of a graph lives: PERSISTENT offsets for weights, GLOBAL offsets for activations.

Activations are planned once, for steps of up to `max_tokens` tokens. A buffer is live from the operation that
makes it to the last that reads it, both included, so an operation never writes what it reads unless it works in
place; buffers that are not live together share bytes:

    operation   0    1    2    3    4
    x           [=========]                 offset 0
    n                [====]                 offset A
    y                          [====]       offset 0 again, first fit in order of first use
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from unsay.compiler.ir.core import Value
from unsay.compiler.ir.types import paired_head_dim
from unsay.compiler.lower.plan import (
    PackedMatrix,
    PackedVector,
    PackingPlan,
    PlanEntry,
    RopeTable,
    Source,
    aligned,
)
from unsay.isa.formats import DType
from unsay.isa.opcodes import Region


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a TENSOR instruction says: a register that holds an equal one holds the same memory."""

    region: Region
    dtype: DType
    dims: tuple[int, ...]
    offset: int
    flags: tuple[str, ...] = ()


@dataclass(slots=True)
class Buffer:
    """Bytes of the arena, live during the operations first..last."""

    num_bytes: int
    first: int
    last: int
    offset: int = 0

    @property
    def end(self) -> int:
        """Offset after its bytes."""
        return self.offset + aligned(self.num_bytes)


def place(buffers: Iterable[Buffer]) -> int:
    """Give every buffer its offset, first fit; the bytes of the arena."""
    total = 0
    live: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda buffer: buffer.first):
        live = [other for other in live if other.last >= buffer.first]
        buffer.offset = _first_fit(aligned(buffer.num_bytes), live)
        live.append(buffer)
        total = max(total, buffer.end)
    return total


def _first_fit(num_bytes: int, live: Sequence[Buffer]) -> int:
    offset = 0
    for other in sorted(live, key=lambda buffer: buffer.offset):
        if other.offset - offset >= num_bytes:
            break
        offset = max(offset, other.end)
    return offset


class Persistent:
    """Lays weights out in the order they are first asked for; one entry per grouping of tensors."""

    def __init__(self, context_length: int) -> None:
        self._context_length = context_length
        self._entries: dict[object, PlanEntry] = {}
        self._end = 0

    def plan(self) -> PackingPlan:
        """The plan so far."""
        return PackingPlan(tuple(self._entries.values()), self._end)

    def matrix(self, *weights: Value, order: Literal["concat", "alternate"] = "concat") -> Tensor:
        """One packed matrix [N, K] of these weights."""
        key = (order, tuple(weight.producer.string("tensor") for weight in weights))
        dtype, num_columns = weights[0].type.dtype, _fixed(weights[0].type.dims[1])
        sources = tuple(_source(weight) for weight in weights)
        made = PackedMatrix(self._end, dtype, num_columns, sources, order)
        entry = self._enter((*key, sources), made)
        return Tensor(Region.PERSISTENT, dtype, (made.num_rows, num_columns), entry.offset)

    def vector(self, *vectors: Value) -> Tensor:
        """One f32 vector [N] of these."""
        sources = tuple(_source(vector) for vector in vectors)
        made = PackedVector(self._end, sources)
        entry = self._enter(sources, made)
        return Tensor(Region.PERSISTENT, DType.F32, (made.num_rows,), entry.offset)

    def rope_table(self, head_dim: int, base: float) -> Tensor:
        """cos and sin [context][D/2][2]."""
        made = RopeTable(self._end, self._context_length, head_dim, base)
        entry = self._enter((head_dim, base), made)
        return Tensor(Region.PERSISTENT, DType.F32, (self._context_length, head_dim // 2, 2), entry.offset)

    def _enter(self, key: object, made: PlanEntry) -> PlanEntry:
        entry = self._entries.setdefault(key, made)
        if entry is made:
            self._end += made.num_bytes
        return entry


def _source(weight: Value) -> Source:
    num_rows, head_dim = _fixed(weight.type.dims[0]), paired_head_dim(weight.type.layout)
    tensor = weight.producer.string("tensor")
    return Source(tensor, num_rows) if head_dim is None else Source(tensor, num_rows, num_rows // head_dim, head_dim)


def _fixed(extent: object) -> int:
    assert isinstance(extent, int), extent
    return extent
