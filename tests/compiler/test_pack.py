"""Packed weights against the layout's own words in isa/formats.py, one element at a time."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.frontend.gguf_bytes import gguf, tensor
from unsay.compiler.frontend.gguf import open_gguf
from unsay.compiler.frontend.model_file import FILE_BLOCKS, ModelFile
from unsay.compiler.lower.plan import PackedMatrix, PackedVector, PackingPlan, PlanEntry, RopeTable, Source, aligned
from unsay.compiler.pack import CHUNK_BYTES, LAYOUT_VERSION, packed_pieces, write_packed
from unsay.compiler.rope import rope_rows
from unsay.isa.formats import FLOAT_WEIGHTS, QUANTISED_WEIGHTS, ROW_GROUP, DType, group_block_bytes, weight_bytes

KIND = {DType.F32: 0, DType.F16: 1, DType.BF16: 30, DType.Q4_0: 2, DType.Q4_1: 3, DType.Q8_0: 8}
FLOAT_BYTES = {DType.F32: 4, DType.F16: 2, DType.BF16: 2}
Element = tuple[int, ...]


def row_bytes(dtype: DType, num_columns: int) -> int:
    """Bytes of a row in the file."""
    block, block_bytes = FILE_BLOCKS[dtype]
    return num_columns // block * block_bytes


def made_file(tmp_path: Path, dtype: DType, shapes: dict[str, tuple[int, ...]]) -> ModelFile:
    """A file of tensors of random bytes; shapes outermost first."""
    entries, data, random = [], b"", np.random.default_rng(len(shapes))
    for name, shape in shapes.items():
        entries.append(tensor(name, reversed(shape), KIND[dtype], len(data)))
        data += random.bytes(row_bytes(dtype, shape[-1]) * int(np.prod(shape[:-1])))
        data += bytes(-len(data) % 32)
    path = tmp_path / "weights.gguf"
    path.write_bytes(gguf([], entries, data))
    return open_gguf(path)


def file_element(row: bytes, dtype: DType, k: int) -> Element:
    """Element k of a row in the file, as (q, d, m) bits or (float bits,). Source: ggml's block structs."""
    if dtype in FLOAT_WEIGHTS:
        size = FLOAT_BYTES[dtype]
        return (int.from_bytes(row[k * size : (k + 1) * size], "little"),)
    block_bytes = FILE_BLOCKS[dtype][1]
    block, inside = row[k // 32 * block_bytes :][:block_bytes], k % 32
    d = int.from_bytes(block[:2], "little")
    if dtype is DType.Q8_0:
        return block[2 + inside], d
    start = 4 if dtype is DType.Q4_1 else 2
    byte = block[start + inside % 16]
    q = byte & 15 if inside < 16 else byte >> 4
    return (q, d, int.from_bytes(block[2:4], "little")) if dtype is DType.Q4_1 else (q, d)


def packed_element(packed: bytes, dtype: DType, num_columns: int, row: int, k: int) -> Element:
    """The same element where isa/formats.py says it is."""
    group, r = divmod(row, ROW_GROUP)
    if dtype in FLOAT_WEIGHTS:
        size = FLOAT_BYTES[dtype]
        start = ((group * num_columns + k) * ROW_GROUP + r) * size
        return (int.from_bytes(packed[start : start + size], "little"),)
    size = group_block_bytes(dtype)
    block = packed[(group * (num_columns // 32) + k // 32) * size :][:size]
    inside = k % 32
    if dtype is DType.Q8_0:
        j, i = divmod(inside, 4)
        return block[64 * j + 4 * r + i], int.from_bytes(block[512 + 2 * r :][:2], "little")
    j, i = divmod(inside % 16, 4)
    byte = block[64 * j + 4 * r + i]
    q = byte & 15 if inside < 16 else byte >> 4
    d = int.from_bytes(block[256 + 2 * r :][:2], "little")
    return (q, d, int.from_bytes(block[288 + 2 * r :][:2], "little")) if dtype is DType.Q4_1 else (q, d)


def assert_packed(file: ModelFile, entry: PackedMatrix, expected: Sequence[tuple[str, int] | None]) -> None:
    """The packed matrix holds these rows (tensor, row), None being zeros, and nothing else."""
    packed = b"".join(packed_pieces(entry, file))
    assert len(packed) == weight_bytes(entry.dtype, entry.num_rows, entry.num_columns)
    assert len(expected) % ROW_GROUP == 0
    zero = bytes(row_bytes(entry.dtype, entry.num_columns))
    for row, origin in enumerate(expected):
        raw = zero if origin is None else file.data(origin[0])[origin[1]].tobytes()
        for k in range(entry.num_columns):
            found = packed_element(packed, entry.dtype, entry.num_columns, row, k)
            assert found == file_element(raw, entry.dtype, k), (row, k)


@pytest.mark.parametrize("num_rows", [1, 5, 16, 37])
@pytest.mark.parametrize("dtype", [*sorted(QUANTISED_WEIGHTS), *sorted(FLOAT_WEIGHTS)])
def test_every_element_lies_where_the_layout_says(tmp_path: Path, dtype: DType, num_rows: int) -> None:
    file = made_file(tmp_path, dtype, {"w": (num_rows, 96)})
    rows = [("w", row) for row in range(num_rows)] + [None] * (-num_rows % ROW_GROUP)
    assert_packed(file, PackedMatrix(0, dtype, 96, (Source("w", num_rows),)), rows)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_float_rows_need_no_whole_blocks(tmp_path: Path, dtype: DType) -> None:
    file = made_file(tmp_path, dtype, {"w": (17, 7)})
    rows = [("w", row) for row in range(17)] + [None] * 15
    assert_packed(file, PackedMatrix(0, dtype, 7, (Source("w", 17),)), rows)


def test_concat_pads_once_at_the_end(tmp_path: Path) -> None:
    file = made_file(tmp_path, DType.Q4_1, {"q": (20, 32), "k": (7, 32), "v": (7, 32)})
    entry = PackedMatrix(0, DType.Q4_1, 32, (Source("q", 20), Source("k", 7), Source("v", 7)))
    rows = [(name, row) for name, count in (("q", 20), ("k", 7), ("v", 7)) for row in range(count)]
    assert_packed(file, entry, rows + [None] * 14)


def test_alternate_takes_row_groups_in_turn(tmp_path: Path) -> None:
    file = made_file(tmp_path, DType.Q8_0, {"gate": (48, 32), "up": (48, 32)})
    entry = PackedMatrix(0, DType.Q8_0, 32, (Source("gate", 48), Source("up", 48)), "alternate")
    starts = range(0, 48, ROW_GROUP)
    rows = [(name, start + row) for start in starts for name in ("gate", "up") for row in range(ROW_GROUP)]
    assert_packed(file, entry, rows)


def test_rope_rows_that_rotate_together_become_neighbours(tmp_path: Path) -> None:
    file = made_file(tmp_path, DType.Q4_0, {"q": (32, 32), "v": (16, 32)})
    entry = PackedMatrix(0, DType.Q4_0, 32, (Source("q", 32, rope_heads=2, head_dim=16), Source("v", 16)))
    pairs = [(head * 16 + i, head * 16 + i + 8) for head in range(2) for i in range(8)]
    assert_packed(file, entry, [("q", row) for pair in pairs for row in pair] + [("v", row) for row in range(16)])


def test_a_matrix_larger_than_a_chunk_is_whole(tmp_path: Path) -> None:
    num_rows = CHUNK_BYTES // (1024 * 4) + 40
    file = made_file(tmp_path, DType.F32, {"w": (num_rows, 1024)})
    pieces = list(packed_pieces(PackedMatrix(0, DType.F32, 1024, (Source("w", num_rows),)), file))
    assert len(pieces) == 2
    packed = np.frombuffer(b"".join(pieces), np.uint32).reshape(-1, 1024, ROW_GROUP)
    rows = packed.transpose(0, 2, 1).reshape(-1, 1024)
    assert (rows[:num_rows] == file.data("w").view(np.uint32)).all() and not rows[num_rows:].any()


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.BF16])
def test_vectors_become_f32_in_packed_order(tmp_path: Path, dtype: DType) -> None:
    file = made_file(tmp_path, dtype, {"q": (16,), "v": (5,)})
    entry = PackedVector(0, (Source("q", 16, rope_heads=1, head_dim=16), Source("v", 5)))
    found = np.frombuffer(b"".join(packed_pieces(entry, file)), np.uint32)
    order = [("q", row + half) for row in range(8) for half in (0, 8)] + [("v", row) for row in range(5)]
    size = FLOAT_BYTES[dtype]
    for bits, (name, row) in zip(found.tolist(), order, strict=True):
        raw = file.data(name).tobytes()[row * size :][:size]
        assert bits == float32_bits(raw, dtype), (name, row)


def float32_bits(raw: bytes, dtype: DType) -> int:
    """The bits of the float32 that equals this value; a signalling NaN of f16 becomes a quiet one."""
    if dtype is DType.F16:
        return int(np.frombuffer(raw, np.float16).astype(np.float32).view(np.uint32)[0])
    return int.from_bytes(raw, "little") << (16 if dtype is DType.BF16 else 0)


def test_the_rope_table_is_cos_and_sin_in_turn(tmp_path: Path) -> None:
    file = made_file(tmp_path, DType.F32, {"w": (1, 1)})
    packed = b"".join(packed_pieces(RopeTable(0, 100, 32, 1e4), file))
    assert packed == rope_rows(range(100), 32, 1e4).tobytes()


def test_the_file_is_the_entries_at_their_offsets_and_zeros_between(tmp_path: Path) -> None:
    file = made_file(tmp_path, DType.F32, {"norm": (5,), "w": (3, 8)})
    entries: list[PlanEntry] = [PackedVector(0, (Source("norm", 5),))]
    entries.append(PackedMatrix(128, DType.F32, 8, (Source("w", 3),)))
    entries.append(RopeTable(128 + entries[1].num_bytes, 3, 16, 1e4))
    plan = PackingPlan(tuple(entries), entries[2].offset + aligned(entries[2].num_bytes) + 64)
    out, reports = io.BytesIO(), list[tuple[str, int, int]]()
    write_packed(plan, file, out, lambda *report: reports.append(report))
    written = out.getvalue()
    assert len(written) == plan.total_bytes
    rest = bytearray(written)
    for entry in entries:
        expected = b"".join(packed_pieces(entry, file))
        assert written[entry.offset : entry.offset + len(expected)] == expected
        rest[entry.offset : entry.offset + len(expected)] = bytes(len(expected))
    assert not any(rest)
    assert [what for what, _, _ in reports] == ["repack"] * 3 and reports[-1][1] <= reports[-1][2] == plan.total_bytes


def test_the_layout_has_a_version(tmp_path: Path) -> None:
    """Packed files are kept under LAYOUT_VERSION: whoever changes a layout raises it, and pins the new bytes here."""
    digest = hashlib.sha256()
    for dtype in DType:
        if dtype in KIND:
            file = made_file(tmp_path, dtype, {"a": (32, 64), "b": (32, 64)})
            for order in ("concat", "alternate"):
                entry = PackedMatrix(0, dtype, 64, (Source("a", 32, 2, 16), Source("b", 32)), order)
                digest.update(b"".join(packed_pieces(entry, file)))
    assert (LAYOUT_VERSION, digest.hexdigest()) == (
        1,
        "eca42a67453db7856c826f73917524f48a8a8fbf4b5555dbd5102e708e3b44d3",
    )


def test_packing_keeps_memory_flat(tmp_path: Path) -> None:
    num_rows = 16 * CHUNK_BYTES // 2048
    path = tmp_path / "large.gguf"
    header = gguf([], [tensor("w", [1024, num_rows], KIND[DType.F16])])
    path.write_bytes(header)
    with path.open("r+b") as sparse:
        sparse.truncate(len(header) + num_rows * 2048)
    file = open_gguf(path)
    entry = PackedMatrix(0, DType.F16, 1024, (Source("w", num_rows),))
    plan = PackingPlan((entry,), entry.num_bytes)
    with (tmp_path / "packed.bin").open("wb") as out:
        tracemalloc.start()
        write_packed(plan, file, out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 6 * CHUNK_BYTES < entry.num_bytes, peak


def test_what_was_packed_takes_no_memory_any_more(tmp_path: Path) -> None:
    rows, columns = 512, 4096
    file = made_file(tmp_path, DType.F32, {"w": (rows, columns)})
    num_bytes = weight_bytes(DType.F32, rows, columns)
    plan = PackingPlan((PackedMatrix(0, DType.F32, columns, (Source("w", rows),)),), aligned(num_bytes))
    assert file.data("w").any() and resident_bytes(file.path) >= num_bytes
    write_packed(plan, file, io.BytesIO())
    assert resident_bytes(file.path) == 0


def resident_bytes(path: Path) -> int:
    """Of a mapped file, in this process."""
    told = Path("/proc/self/smaps").read_text().partition(str(path))[2]
    return 1024 * int(told.partition("Rss:")[2].split()[0])
