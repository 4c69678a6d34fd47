"""safetensors files: a header of JSON that says where tensors lie, then their bytes.

    header_bytes u64 | header, padded with spaces | the bytes of the tensors, with nothing between them
    header:  {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
             offsets count from the end of the header; shapes are outermost first; little-endian

A file is a stranger's. The header's length is checked against the file and MAX_HEADER_BYTES before any of it is read,
then every name, type, shape and offset; the tensors must cover the rest of the file exactly, as the format demands, so
none lies outside it and no two share a byte. Tensors are views of the mapped file; nothing of them is read here.
Source: the format section of the safetensors documentation (huggingface.co/docs/safetensors).
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.frontend.json_text import parse_json
from unsay.compiler.frontend.model_file import TensorInfo, forget_pages, map_file, tensor_rows
from unsay.errors import ModelFileError, UnsupportedError
from unsay.isa.formats import DType

MAX_HEADER_BYTES = 1 << 22
"""A shard of a model of 70 billion parameters has 10 KB."""
MAX_TENSORS = 1 << 12
MAX_NAME_CHARACTERS = 256
MAX_DIMS = 8

_HEAD = struct.Struct("<Q")
_METADATA = "__metadata__"
_ENTRY_KEYS = {"dtype", "shape", "data_offsets"}
_DTYPES = {"F32": (DType.F32, 4), "F16": (DType.F16, 2), "BF16": (DType.BF16, 2)}
"""Format and bytes of an element."""


class SafetensorsFile:
    """A checked file: `tensors` in the order of their bytes, `metadata` of strings."""

    def __init__(
        self, path: Path, data: mmap.mmap, tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]
    ) -> None:
        self.path = path
        self.tensors = tensors
        self.metadata = metadata
        self._data = data

    def data(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor, uint8 [rows, row_bytes]; a view."""
        return tensor_rows(self._data, self.tensors[name])

    def forget(self) -> None:
        """Give back the memory of all that was read."""
        forget_pages(self._data)


def open_safetensors(path: Path) -> SafetensorsFile:
    """Map and check a file.

    Raises ModelNotFoundError if there is none, ModelFileError saying where it is wrong, UnsupportedError naming an
    element type that is not read.
    """
    data = map_file(path, "safetensors", _HEAD.size)
    header, start = _header(path.name, data)
    metadata = _metadata(path.name, header.pop(_METADATA, {}))
    if len(header) > MAX_TENSORS:
        _fail(path.name, f"{len(header)} tensors, the most that is read is {MAX_TENSORS}")
    placed = [_tensor(path.name, name, entry, start) for name, entry in header.items()]
    placed.sort(key=lambda tensor: (tensor.offset, tensor.num_bytes))
    _check_cover(path.name, placed, start, len(data))
    return SafetensorsFile(path, data, {tensor.name: tensor for tensor in placed}, metadata)


def _header(file: str, data: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The header as an object, and where the tensors' bytes begin."""
    (num_bytes,) = _HEAD.unpack_from(data)
    left = len(data) - _HEAD.size
    if num_bytes > left:
        _fail(file, f"a header of {num_bytes} bytes, the file has {left} left; it is cut short, or no safetensors file")
    if num_bytes > MAX_HEADER_BYTES:
        _fail(file, f"a header of {num_bytes} bytes, the most that is read is {MAX_HEADER_BYTES}")
    end = _HEAD.size + num_bytes
    text = data[_HEAD.size : end]
    if not text.startswith(b"{"):
        _fail(file, f"the header begins with {text[:4]!r}, not with '{{'; no safetensors file")
    header = parse_json(f"{file}: the header", text)
    if not isinstance(header, dict):
        _fail(file, "the header is no JSON object")
    return cast("dict[str, Any]", header), end


def _metadata(file: str, given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        _fail(file, f"{_METADATA} is no object of strings")
    metadata = cast("dict[str, object]", given)
    if not all(isinstance(value, str) for value in metadata.values()):
        _fail(file, f"{_METADATA} is no object of strings")
    return cast("dict[str, str]", metadata)


def _tensor(file: str, name: str, entry: object, start: int) -> TensorInfo:
    where = f"tensor {name[:80]!r}"
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        _fail(file, f"{where} has a name of {len(name)} characters, 1 to {MAX_NAME_CHARACTERS} are possible")
    if not isinstance(entry, dict):
        _fail(file, f"{where} is no object of {', '.join(sorted(_ENTRY_KEYS))}")
    fields = cast("dict[str, object]", entry)
    if fields.keys() != _ENTRY_KEYS:
        _fail(file, f"{where} has the keys {str(sorted(fields))[:80]}, they must be {', '.join(sorted(_ENTRY_KEYS))}")
    dtype, element_bytes = _dtype(file, where, fields["dtype"])
    shape = _sizes(file, f"{where}: its shape", fields["shape"], MAX_DIMS)
    offsets = _sizes(file, f"{where}: its data_offsets", fields["data_offsets"], 2)
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        _fail(file, f"{where}: its data_offsets are {list(offsets)}, a first and a last byte are needed")
    if 0 in shape:
        _fail(file, f"{where} has the impossible shape {list(shape)}")
    num_bytes = math.prod(shape) * element_bytes
    if num_bytes != offsets[1] - offsets[0]:
        stored = offsets[1] - offsets[0]
        _fail(file, f"{where}: {dtype.name} {list(shape)} takes {num_bytes} bytes, its data_offsets span {stored}")
    return TensorInfo(name, dtype, shape, start + offsets[0], num_bytes)


def _dtype(file: str, where: str, given: object) -> tuple[DType, int]:
    if not isinstance(given, str):
        _fail(file, f"{where}: its dtype {str(given)[:40]!r} is no name")
    if given not in _DTYPES:
        raise UnsupportedError(f"{file}: {where} is stored as {given[:40]}; supported are {', '.join(_DTYPES)}")
    return _DTYPES[given]


def _sizes(file: str, what: str, given: object, most: int) -> tuple[int, ...]:
    """A list of at most `most` integers in 0..2^63-1."""
    items = cast("list[object]", given) if isinstance(given, list) else None
    if items is None or len(items) > most:
        _fail(file, f"{what} is no list of at most {most} numbers")
    sizes = tuple(item for item in items if type(item) is int and 0 <= item < 1 << 63)
    if len(sizes) != len(items):
        _fail(file, f"{what} holds what is no size: {str(items)[:60]}")
    return sizes


def _check_cover(file: str, placed: list[TensorInfo], start: int, size: int) -> None:
    """One after the other, from the end of the header to the end of the file."""
    end, before = start, "the header"
    for tensor in placed:
        if tensor.offset != end:
            what = "overlap" if tensor.offset < end else f"leave {tensor.offset - end} bytes between them"
            _fail(file, f"{before} and tensor {tensor.name[:80]!r} {what}")
        end, before = tensor.offset + tensor.num_bytes, f"tensor {tensor.name[:80]!r}"
    if end != size:
        _fail(file, f"{before} ends at byte {end}, the file has {size}")


def _fail(file: str, message: str) -> NoReturn:
    raise ModelFileError(f"{file}: {message}")
