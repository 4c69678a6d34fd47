"""GGUF model files, versions 2 and 3: a header of named values, then tensors.

    magic "GGUF" | version u32 | num_tensors u64 | num_keys u64
    keys:     name str | type u32 | value                      str is length u64, then UTF-8; array is
    tensors:  name str | num_dims u32 | dims u64[] | type u32 | offset u64        type u32, length u64, items
    pad to general.alignment, then the tensors' bytes; offsets count from here

A file is a stranger's. `open_gguf` checks every count, length and offset against what is left of the file before it
moves on, allocates nothing of a size the file states, and decodes nothing: values stay where they lie in the mapped
file until asked for. Bounds of our own, far above any real model, keep the walk short: MAX_* below.
Source: the GGUF specification, ggml-org/ggml docs/gguf.md.
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from unsay.compiler.frontend.model_file import (
    ARRAY,
    FILE_BLOCKS,
    SCALAR_BYTES,
    STRING,
    Field,
    ModelFile,
    TensorInfo,
    map_file,
)
from unsay.errors import ModelFileError, UnsupportedError
from unsay.isa.formats import DType

MAX_HEADER_BYTES = 1 << 27
MAX_KEYS = 1 << 12
MAX_TENSORS = 1 << 12
MAX_STRINGS = 7 << 16
"""In all arrays of one header; Llama 3, the largest vocabulary of the architectures we run, has 0.41 million."""
MAX_ARRAYS = 1 << 12
"""Inside other arrays, in one header."""
MAX_DEPTH = 4
MAX_KEY_BYTES = (1 << 16) - 1
MAX_NAME_BYTES = 128
MAX_DIMS = 4

_HEAD = struct.Struct("<4sIQQ")
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_MIN_VALUE_BYTES = {**SCALAR_BYTES, STRING: 8, ARRAY: 12}
_MIN_KEY_BYTES = 8 + 1 + 4 + 1
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8

_DTYPES = {0: DType.F32, 1: DType.F16, 30: DType.BF16, 2: DType.Q4_0, 3: DType.Q4_1, 8: DType.Q8_0}
_OTHER_DTYPES = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


def open_gguf(path: Path) -> ModelFile:
    """Map and check a GGUF file.

    Raises ModelNotFoundError if there is none, ModelFileError saying where it is wrong, UnsupportedError naming a
    version, byte order or tensor format this program does not read.
    """
    data = map_file(path, "GGUF", _HEAD.size)
    walk = _Walk(path.name, data)
    num_tensors, num_keys = walk.head()
    fields = walk.keys(num_keys)
    raw = walk.tensors(num_tensors)
    alignment = _alignment(path, data, fields)
    start = -(-walk.position // alignment) * alignment
    tensors = {name: _place(path.name, tensor, start, alignment, len(data)) for name, tensor in raw.items()}
    _check_overlap(path.name, tensors)
    return ModelFile(path, data, fields, tensors)


@dataclass(frozen=True, slots=True)
class _RawTensor:
    name: str
    kind: int
    dims: tuple[int, ...]
    offset: int


class _Walk:
    """Goes through the header once, front to back; `position` is the next byte to look at."""

    def __init__(self, name: str, data: mmap.mmap) -> None:
        self.position = 0
        self._name = name
        self._data = data
        self._end = min(len(data), MAX_HEADER_BYTES)
        self._items_left = {STRING: MAX_STRINGS, ARRAY: MAX_ARRAYS}

    def head(self) -> tuple[int, int]:
        magic, version, num_tensors, num_keys = _HEAD.unpack_from(self._data)
        if magic != b"GGUF":
            self._fail(f"not a GGUF file: it begins with {magic!r}")
        if version & 0xFFFF == 0:
            raise UnsupportedError(f"{self._name}: a big-endian GGUF file; only little-endian ones are supported")
        if version not in (2, 3):
            raise UnsupportedError(f"{self._name}: GGUF version {version}; versions 2 and 3 are supported")
        self.position = _HEAD.size
        return num_tensors, num_keys

    def keys(self, count: int) -> dict[str, Field]:
        self._check_count("keys", count, _MIN_KEY_BYTES, MAX_KEYS)
        fields: dict[str, Field] = {}
        for _ in range(count):
            key = self._string("a key", MAX_KEY_BYTES)
            if key in fields:
                self._fail(f"the key {key[:80]!r} occurs twice")
            fields[key] = self._value(key[:80], self._u32(), 0)
        return fields

    def tensors(self, count: int) -> dict[str, _RawTensor]:
        self._check_count("tensors", count, _MIN_TENSOR_BYTES, MAX_TENSORS)
        tensors: dict[str, _RawTensor] = {}
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in tensors:
                self._fail(f"the tensor {tensor.name!r} occurs twice")
            tensors[tensor.name] = tensor
        return tensors

    def _tensor(self) -> _RawTensor:
        name = self._string("a tensor name", MAX_NAME_BYTES)
        num_dims = self._u32()
        if not 1 <= num_dims <= MAX_DIMS:
            self._fail(f"tensor {name!r} has {num_dims} dimensions, 1 to {MAX_DIMS} are possible")
        dims = tuple(self._u64() for _ in range(num_dims))
        return _RawTensor(name, self._u32(), dims, self._u64())

    def _value(self, key: str, kind: int, depth: int) -> Field:
        if kind == ARRAY:
            return self._array(key, depth)
        if kind == STRING:
            num_bytes = self._u64()
        elif kind in SCALAR_BYTES:
            num_bytes = SCALAR_BYTES[kind]
        else:
            self._fail(f"the key {key!r} has the unknown type {kind}")
        start = self._advance(num_bytes)
        return Field(kind, kind, 1, start, self.position)

    def _array(self, key: str, depth: int) -> Field:
        item_kind, count = self._u32(), self._u64()
        if item_kind not in _MIN_VALUE_BYTES:
            self._fail(f"the array {key!r} has items of the unknown type {item_kind}")
        if depth == MAX_DEPTH:
            self._fail(f"the array {key!r} is nested more than {MAX_DEPTH} deep")
        start = self.position
        if item_kind in SCALAR_BYTES:
            self._advance(count * SCALAR_BYTES[item_kind])
            return Field(ARRAY, item_kind, count, start, self.position)
        self._check_count(f"items of {key!r}", count, _MIN_VALUE_BYTES[item_kind], self._items_left[item_kind])
        self._items_left[item_kind] -= count
        if item_kind == STRING:
            self._skip_strings(count)
        else:
            for _ in range(count):
                self._array(key, depth + 1)
        return Field(ARRAY, item_kind, count, start, self.position)

    def _skip_strings(self, count: int) -> None:
        data, position, unpack = self._data, self.position, _U64.unpack_from
        try:
            for _ in itertools.repeat(None, count):
                (num_bytes,) = unpack(data, position)
                position += 8 + num_bytes
        except (struct.error, OverflowError):
            self._fail(f"one of {count} strings here ends beyond the file")
        self._advance(position - self.position)

    def _string(self, what: str, limit: int) -> str:
        num_bytes = self._u64()
        if not 1 <= num_bytes <= limit:
            self._fail(f"{what} of {num_bytes} bytes, 1 to {limit} are possible")
        start = self._advance(num_bytes)
        try:
            return self._data[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{self._name}, byte {start}: {what} is not UTF-8: {error.reason}") from error

    def _u32(self) -> int:
        return _U32.unpack_from(self._data, self._advance(4))[0]

    def _u64(self) -> int:
        return _U64.unpack_from(self._data, self._advance(8))[0]

    def _advance(self, num_bytes: int) -> int:
        """Step over `num_bytes`, which must be there; returns where they start."""
        start = self.position
        if num_bytes > self._end - start:
            limit = "the file" if self._end == len(self._data) else f"the {MAX_HEADER_BYTES} bytes a header may have"
            self._fail(f"{num_bytes} bytes are needed here, {limit} has {self._end - start} left")
        self.position = start + num_bytes
        return start

    def _check_count(self, what: str, count: int, item_bytes: int, limit: int) -> None:
        if count * item_bytes > self._end - self.position:
            self._fail(f"{count} {what} need at least {count * item_bytes} bytes, {self._end - self.position} are left")
        if count > limit:
            self._fail(f"{count} {what}, the most that is read is {limit}")

    def _fail(self, message: str) -> NoReturn:
        raise ModelFileError(f"{self._name}, byte {self.position}: {message}")


def _alignment(path: Path, data: mmap.mmap, fields: Mapping[str, Field]) -> int:
    value = ModelFile(path, data, fields, {}).integer("general.alignment")
    if value is None:
        return 32
    if not 1 <= value <= 1 << 20 or value & (value - 1):
        raise ModelFileError(f"{path.name}: general.alignment is {value}, it must be a power of two up to 2^20")
    return value


def _place(file: str, raw: _RawTensor, start: int, alignment: int, size: int) -> TensorInfo:
    where = f"{file}: tensor {raw.name!r}"
    dtype = _DTYPES.get(raw.kind)
    if dtype is None:
        given = _OTHER_DTYPES.get(raw.kind, f"the unknown format {raw.kind}")
        supported = ", ".join(dtype.name for dtype in FILE_BLOCKS)
        raise UnsupportedError(f"{where} is stored as {given}; supported are {supported}")
    if 0 in raw.dims or math.prod(raw.dims) >= 1 << 63:
        raise ModelFileError(f"{where} has the impossible dimensions {list(raw.dims)}")
    block, block_bytes = FILE_BLOCKS[dtype]
    if raw.dims[0] % block:
        raise ModelFileError(f"{where}: {dtype.name} stores {block} elements together, its rows have {raw.dims[0]}")
    num_bytes = math.prod(raw.dims) // block * block_bytes
    if raw.offset % alignment:
        raise ModelFileError(f"{where}: its offset {raw.offset} is not a multiple of general.alignment {alignment}")
    if start + raw.offset + num_bytes > size:
        raise ModelFileError(f"{where}: ends at byte {start + raw.offset + num_bytes}, the file has {size}")
    return TensorInfo(raw.name, dtype, raw.dims[::-1], start + raw.offset, num_bytes)


def _check_overlap(file: str, tensors: Mapping[str, TensorInfo]) -> None:
    ordered = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for before, after in itertools.pairwise(ordered):
        if before.offset + before.num_bytes > after.offset:
            raise ModelFileError(f"{file}: the tensors {before.name!r} and {after.name!r} overlap")
