"""A checked model file: its values, decoded when asked for, and where its tensors lie.

A front end walks the file and builds a ModelFile. Packing needs only its tensors (`WeightFile`), whatever held them.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unsay.errors import ModelFileError, ModelNotFoundError
from unsay.isa.formats import DType

BOOL, STRING, ARRAY = 7, 8, 9
_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", BOOL: "<u1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
"""NumPy's name of each scalar type of GGUF."""
SCALAR_BYTES = {kind: int(name[2]) for kind, name in _SCALARS.items()}
_INTEGERS = frozenset({0, 1, 2, 3, 4, 5, 10, 11})
_FLOATS = frozenset({6, 12})

FILE_BLOCKS = {
    DType.F32: (1, 4), DType.F16: (1, 2), DType.BF16: (1, 2),
    DType.Q4_0: (32, 18), DType.Q4_1: (32, 20), DType.Q8_0: (32, 34),
}  # fmt: skip
"""Elements and bytes of a block along K, as it lies in the file."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor: shape outermost first ([N, K] for a matrix), `offset` from the start of the file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int
    num_bytes: int


class WeightFile(Protocol):
    """What packing reads: tensors by name, and the bytes of each."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Shape and format of each tensor, under the name it is asked for."""
        ...

    def data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, uint8 [rows, row_bytes]."""
        ...

    def forget(self) -> None:
        """Give back the memory of all that was read; it is read again when it is asked for."""
        ...


def map_file(path: Path, kind: str, head_bytes: int) -> mmap.mmap:
    """A regular file of at least `head_bytes`, mapped. kind: what it should be, for the message.

    Raises ModelNotFoundError or ModelFileError.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelFileError(f"{path} is not a file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < head_bytes:
                raise ModelFileError(f"{path.name}: {size} bytes, the header of a {kind} file alone has {head_bytes}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise ModelNotFoundError(f"no model file at {path}") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error


def forget_pages(data: mmap.mmap) -> None:
    """A mapped file takes no memory of this process until it is read again; the system may keep it."""
    data.madvise(mmap.MADV_DONTNEED)


def tensor_rows(data: mmap.mmap, tensor: TensorInfo) -> NDArray[np.uint8]:
    """The bytes of a tensor as they lie in the mapped file, uint8 [rows, row_bytes]; a view, nothing is read."""
    rows = math.prod(tensor.shape[:-1])
    return np.frombuffer(data, np.uint8, tensor.num_bytes, tensor.offset).reshape(rows, tensor.num_bytes // rows)


@dataclass(frozen=True, slots=True)
class Field:
    """Where a value lies: [start, end) holds a scalar, a string's bytes, or the items of an array."""

    kind: int
    item_kind: int
    count: int
    start: int
    end: int


class ModelFile:
    """A checked model file. Values are decoded when asked for; None where the file has no such key.

    Accessors raise ModelFileError when the value is of another type than the one asked for.
    """

    def __init__(
        self, path: Path, data: mmap.mmap, fields: Mapping[str, Field], tensors: Mapping[str, TensorInfo]
    ) -> None:
        self.path = path
        self.tensors = tensors
        self._data = data
        self._fields = fields

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of all values, in file order."""
        return tuple(self._fields)

    def integer(self, key: str) -> int | None:
        """An integer of any width."""
        field = self._field(key, _INTEGERS, "an integer")
        return None if field is None else int(self._items(field, field.kind, 1)[0])

    def number(self, key: str) -> float | None:
        """A float or an integer."""
        field = self._field(key, _FLOATS | _INTEGERS, "a number")
        return None if field is None else float(self._items(field, field.kind, 1)[0])

    def boolean(self, key: str) -> bool | None:
        """A bool, stored as a byte 0 or 1."""
        field = self._field(key, frozenset({BOOL}), "a bool")
        if field is None:
            return None
        byte = self._data[field.start]
        if byte > 1:
            raise ModelFileError(f"{self.path.name}: {key} is the bool {byte}, it must be 0 or 1")
        return byte == 1

    def text(self, key: str) -> str | None:
        """A string."""
        field = self._field(key, frozenset({STRING}), "a string")
        return None if field is None else self._decode(key, self._data[field.start : field.end])

    def strings(self, key: str) -> tuple[str, ...] | None:
        """An array of strings."""
        field = self._field(key, frozenset({ARRAY}), "an array")
        if field is None:
            return None
        if field.item_kind != STRING:
            raise ModelFileError(f"{self.path.name}: {key} is an array of type {field.item_kind}, strings are needed")
        blob, items, position = self._data[field.start : field.end], list[bytes](), 0
        for _ in range(field.count):
            start = position + 8
            position = start + int.from_bytes(blob[position:start], "little")
            items.append(blob[start:position])
        try:
            return tuple([item.decode() for item in items])
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{self.path.name}: {key} holds bytes that are not UTF-8: {error.reason}") from error

    def integers(self, key: str) -> tuple[int, ...] | None:
        """An array of integers of any width."""
        field = self._field(key, frozenset({ARRAY}), "an array")
        if field is None:
            return None
        if field.item_kind not in _INTEGERS:
            raise ModelFileError(f"{self.path.name}: {key} is an array of type {field.item_kind}, integers are needed")
        return tuple(self._items(field, field.item_kind, field.count).tolist())

    def data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor as they lie in the file, uint8 [rows, row_bytes]; a view, nothing is read."""
        return tensor_rows(self._data, self.tensors[name])

    def forget(self) -> None:
        """Give back the memory of all that was read."""
        forget_pages(self._data)

    def _field(self, key: str, kinds: frozenset[int], wanted: str) -> Field | None:
        field = self._fields.get(key)
        if field is not None and field.kind not in kinds:
            raise ModelFileError(f"{self.path.name}: {key} has type {field.kind}, {wanted} is needed")
        return field

    def _items(self, field: Field, kind: int, count: int) -> NDArray[np.generic]:
        return np.frombuffer(self._data, _SCALARS[kind], count, field.start)

    def _decode(self, key: str, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelFileError(f"{self.path.name}: {key} is not UTF-8: {error.reason}") from error
