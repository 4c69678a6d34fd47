"""Tensors of an ONNX file as arrays: views of the mapped file where they lie raw, checked before they are made."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.onnx.wire import Buffer, Message
from unsay.errors import ModelFileError, UnsupportedError
from unsay.isa.formats import DType

MAX_RANK = 8
MAX_ELEMENTS = 1 << 40

DTYPES = {
    1: DType.F32, 3: DType.I8, 6: DType.I32, 7: DType.I64, 9: DType.BOOL, 10: DType.F16, 11: DType.F64, 16: DType.BF16,
}  # fmt: skip
_OTHER_DTYPES = {
    2: "uint8", 4: "uint16", 5: "int16", 8: "string", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128",
    17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4e2m1",
}  # fmt: skip
NUMPY = {
    DType.F32: np.dtype("<f4"), DType.F16: np.dtype("<f2"), DType.F64: np.dtype("<f8"), DType.BF16: np.dtype("<u2"),
    DType.I32: np.dtype("<i4"), DType.I64: np.dtype("<i8"), DType.I8: np.dtype("i1"), DType.BOOL: np.dtype("?"),
}  # fmt: skip
"""NumPy's type of each element type; bf16 is its bit pattern."""

_DIMS, _TYPE, _FLOATS, _INT32S, _INT64S, _NAME, _RAW, _DOUBLES, _EXTERNAL, _LOCATION = 1, 2, 4, 5, 7, 8, 9, 10, 13, 14


def dtype_of(code: int) -> DType:
    """The element type of an ONNX code; raises UnsupportedError naming one that LLMIR does not have."""
    dtype = DTYPES.get(code)
    if dtype is None:
        raise UnsupportedError(f"element type {_OTHER_DTYPES.get(code, code)}; LLMIR has {', '.join(_names())}")
    return dtype


class TensorReader:
    """Makes arrays of TensorProto messages; `path` is the model's, beside which external data lies."""

    def __init__(self, path: Path, data: Buffer) -> None:
        self._directory = path.parent.resolve()
        self._data = data
        self._files: dict[Path, mmap.mmap] = {}

    def read(self, message: Message) -> tuple[str, DType, NDArray[Any]]:
        """Name, element type, array (read only). Raises ModelFileError or UnsupportedError with the name."""
        name = message.text(_NAME)
        try:
            dtype = dtype_of(message.integer(_TYPE))
            return name, dtype, self._array(message, dtype)
        except ModelFileError as error:
            raise type(error)(f"tensor {name[:80]!r}: {error}") from error

    def _array(self, message: Message, dtype: DType) -> NDArray[Any]:
        shape = tuple(message.integers(_DIMS))
        check_shape(shape)
        kind, count = NUMPY[dtype], math.prod(shape)
        if message.integer(_LOCATION) == 1:
            flat = self._external(message, kind, count)
        elif (span := message.span(_RAW)) is not None:
            _check_length(span[1] - span[0], kind, count)
            flat = np.frombuffer(self._data, kind, count, span[0]) if count else np.empty(0, kind)
        else:
            flat = _typed(message, dtype, kind)
            if flat.size != count:
                raise ModelFileError(f"{flat.size} elements for the shape {list(shape)}")
        if dtype is DType.BOOL and flat.view(np.uint8).max(initial=0) > 1:
            raise ModelFileError("a bool that is neither 0 nor 1")
        array = flat.reshape(shape)
        array.flags.writeable = False
        return array

    def _external(self, message: Message, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        entries = {entry.text(1): entry.text(2) for entry in message.messages(_EXTERNAL)}
        data = self._open(entries.get("location", ""))
        offset, length = _number(entries, "offset", 0), _number(entries, "length", count * kind.itemsize)
        _check_length(length, kind, count)
        if offset + length > len(data):
            raise ModelFileError(f"external data [{offset}, {offset + length}) of a file of {len(data)} bytes")
        return np.frombuffer(data, kind, count, offset) if count else np.empty(0, kind)

    def _open(self, location: str) -> mmap.mmap:
        """A file in or below the model's directory, links followed; raises ModelFileError for any other."""
        if not location or "\0" in location:
            raise ModelFileError(f"external data at {location!r}, which is no file name")
        path = (self._directory / location).resolve()
        if not path.is_relative_to(self._directory):
            raise ModelFileError(f"external data at {location!r} lies outside the directory of the model")
        if path not in self._files:
            self._files[path] = map_file(path)
        return self._files[path]


def map_file(path: Path) -> mmap.mmap:
    """The file in memory; raises ModelFileError if it is none, empty, or cannot be read."""
    if not path.is_file():
        raise ModelFileError(f"{path.name} is not there, or is not a file")
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read {path.name}: {error}") from error


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise ModelFileError for a shape no tensor has: negative, of too many dimensions or elements."""
    if len(shape) > MAX_RANK or any(size < 0 for size in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise ModelFileError(
            f"the shape {str(list(shape))[:200]} is none: up to {MAX_RANK} dimensions of 0 or more, up to 2^40 elements"
        )


def _typed(message: Message, dtype: DType, kind: np.dtype[Any]) -> NDArray[Any]:
    """The elements from the field of their type; 8 and 16 bits lie in int32s, halves as bit patterns."""
    if dtype is DType.F32:
        return np.frombuffer(message.fixed(_FLOATS, 4), kind)
    if dtype is DType.F64:
        return np.frombuffer(message.fixed(_DOUBLES, 8), kind)
    if dtype is DType.I64:
        return np.array(message.integers(_INT64S), kind)
    numbers = np.array(message.integers(_INT32S), np.int64)
    bits = np.dtype("<u2") if dtype in (DType.F16, DType.BF16) else np.dtype("u1") if dtype is DType.BOOL else kind
    limits = np.iinfo(bits)
    if numbers.size and not limits.min <= numbers.min() <= numbers.max() <= limits.max:
        raise ModelFileError(f"an element outside {limits.min}..{limits.max}")
    return numbers.astype(bits).view(kind)


def _check_length(num_bytes: int, kind: np.dtype[Any], count: int) -> None:
    if num_bytes != count * kind.itemsize:
        raise ModelFileError(f"{num_bytes} bytes for {count} elements of {kind.itemsize} bytes")


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ModelFileError(f"external data with {key} {text[:40]!r}")
    return int(text)


def _names() -> list[str]:
    return [dtype.name.lower() for dtype in DTYPES.values()]
