"""Writes the packed weights: carries out a PackingPlan (lower/plan.py) in the layouts of isa/formats.py.

Tensor by tensor and at most CHUNK_BYTES at a time, straight into the file, so memory stays flat whatever the model.
Nothing is computed but the rope table: weights are moved, never requantised. That each tensor is in the file, with the
shape and type the plan says, was checked when the graph was built; here it is asserted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.model_file import FILE_BLOCKS, WeightFile
from unsay.compiler.lower.plan import PackedMatrix, PackedVector, PackingPlan, PlanEntry, RopeTable, Source
from unsay.compiler.rope import rope_rows
from unsay.core import Float32Array, Progress
from unsay.isa.formats import ROW_GROUP, DType, padded_rows

LAYOUT_VERSION = 1
"""Part of the name of a packed file; raised when a layout of isa/formats.py, or the rope table, changes."""

CHUNK_BYTES = 4 << 20

_FILE_BLOCK = {
    DType.Q4_0: np.dtype([("d", "<u2"), ("q", "<u4", (4,))]),
    DType.Q4_1: np.dtype([("d", "<u2"), ("m", "<u2"), ("q", "<u4", (4,))]),
    DType.Q8_0: np.dtype([("d", "<u2"), ("q", "<u4", (8,))]),
    DType.F16: np.dtype([("w", "<u2")]),
    DType.BF16: np.dtype([("w", "<u2")]),
    DType.F32: np.dtype([("w", "<u4")]),
}
"""One block of one row in the file. q as words of 4 bytes: word j holds byte i of k = 4j + i, the unit that moves."""
_PACKED_BLOCK = {
    DType.Q4_0: np.dtype([("q", "<u4", (4, ROW_GROUP)), ("d", "<u2", (ROW_GROUP,))]),
    DType.Q4_1: np.dtype([("q", "<u4", (4, ROW_GROUP)), ("d", "<u2", (ROW_GROUP,)), ("m", "<u2", (ROW_GROUP,))]),
    DType.Q8_0: np.dtype([("q", "<u4", (8, ROW_GROUP)), ("d", "<u2", (ROW_GROUP,))]),
    DType.F16: np.dtype([("w", "<u2", (ROW_GROUP,))]),
    DType.BF16: np.dtype([("w", "<u2", (ROW_GROUP,))]),
    DType.F32: np.dtype([("w", "<u4", (ROW_GROUP,))]),
}
"""The same block of 16 rows, as isa/formats.py lays it out."""

RowMap: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""For each packed row: which source it comes from (-1: a zero row), and which row of that."""


def write_packed(plan: PackingPlan, file: WeightFile, out: BinaryIO, progress: Progress | None = None) -> None:
    """Write all `plan.total_bytes` to `out`, an empty file; raises OSError when it does not fit."""
    written = 0
    for entry in plan.entries:
        out.write(bytes(entry.offset - written))
        written = entry.offset
        for piece in packed_pieces(entry, file):
            written += out.write(piece)
            if progress is not None:
                progress("repack", written, plan.total_bytes)
        assert written <= entry.offset + entry.num_bytes, (entry, written)
        file.forget()
    out.write(bytes(plan.total_bytes - written))


def packed_pieces(entry: PlanEntry, file: WeightFile) -> Iterator[bytes]:
    """The bytes of one entry, in pieces, without the padding after it."""
    match entry:
        case PackedMatrix():
            yield from _matrix_pieces(entry, file)
        case PackedVector():
            yield np.concatenate([_vector(source, file) for source in entry.sources]).tobytes()
        case RopeTable():
            step = max(1, CHUNK_BYTES // (4 * entry.head_dim))
            for start in range(0, entry.context_length, step):
                positions = range(start, min(start + step, entry.context_length))
                yield rope_rows(positions, entry.head_dim, entry.base).tobytes()


def pack_rows(rows: NDArray[np.uint8], dtype: DType) -> bytes:
    """Interleave rows as they lie in the file, uint8 [N, row_bytes], N a multiple of 16, into row groups."""
    groups = rows.shape[0] // ROW_GROUP
    blocks = rows.view(_FILE_BLOCK[dtype]).reshape(groups, ROW_GROUP, -1)
    packed = np.empty((groups, blocks.shape[2]), _PACKED_BLOCK[dtype])
    for name in packed.dtype.names or ():
        packed[name] = np.moveaxis(blocks[name], 1, -1)
    return packed.tobytes()


def matrix_rows(entry: PackedMatrix) -> RowMap:
    """Where each row of the packed matrix comes from, N padded to whole row groups."""
    origin = [np.full(source.num_rows, index, np.int64) for index, source in enumerate(entry.sources)]
    rows = [source_rows(source) for source in entry.sources]
    if entry.order == "alternate":
        return _alternate(origin), _alternate(rows)
    padding = padded_rows(entry.num_rows) - entry.num_rows
    return (
        np.concatenate([*origin, np.full(padding, -1, np.int64)]),
        np.concatenate([*rows, np.zeros(padding, np.int64)]),
    )


def source_rows(source: Source) -> NDArray[np.int64]:
    """Rows of a source in packed order: as they are, or rope pairs (i, i + D/2) of each head side by side."""
    rows = np.arange(source.num_rows, dtype=np.int64)
    if source.rope_heads is None:
        return rows
    assert source.rope_heads * source.head_dim == source.num_rows, source
    return rows.reshape(source.rope_heads, 2, source.head_dim // 2).transpose(0, 2, 1).reshape(-1)


def _alternate(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    groups = [part.reshape(-1, ROW_GROUP) for part in parts]
    return np.stack(groups, axis=1).reshape(-1)


def _matrix_pieces(entry: PackedMatrix, file: WeightFile) -> Iterator[bytes]:
    origin, rows = matrix_rows(entry)
    for source in entry.sources:
        tensor = file.tensors[source.tensor]
        assert tensor.dtype is entry.dtype and tensor.shape == (source.num_rows, entry.num_columns), (entry, tensor)
    sources = [file.data(source.tensor) for source in entry.sources]
    block, block_bytes = FILE_BLOCKS[entry.dtype]
    row_bytes = entry.num_columns // block * block_bytes
    step = max(1, CHUNK_BYTES // (row_bytes * ROW_GROUP)) * ROW_GROUP
    for start in range(0, len(rows), step):
        chunk = slice(start, start + step)
        gathered = np.zeros((len(rows[chunk]), row_bytes), np.uint8)
        for index, source in enumerate(sources):
            wanted = origin[chunk] == index
            gathered[wanted] = source[rows[chunk][wanted]]
        yield pack_rows(gathered, entry.dtype)


def _vector(source: Source, file: WeightFile) -> Float32Array:
    tensor = file.tensors[source.tensor]
    assert tensor.shape == (source.num_rows,), (source, tensor)
    raw = file.data(source.tensor).reshape(-1)
    match tensor.dtype:
        case DType.F32:
            values = raw.view("<f4")
        case DType.F16:
            values = raw.view("<f2").astype(np.float32)
        case _:
            assert tensor.dtype is DType.BF16, tensor
            values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    return values[source_rows(source)]
