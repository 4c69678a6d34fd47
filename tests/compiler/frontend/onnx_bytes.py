"""ONNX files byte by byte, right or wrong: what the tests of the reader feed it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

FLOAT, INT32, INT64, BOOL = 1, 6, 7, 9
_CODES = {"f4": FLOAT, "i4": INT32, "i8": INT64, "b1": BOOL, "f2": 10, "f8": 11, "i1": 3}


def varint(value: int) -> bytes:
    """A number, seven bits a byte; negative ones as 64 bits."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One field: a number, a float of 4 bytes, or text, bytes or a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + np.float32(value).tobytes()
    raw = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def tensor(name: str, array: NDArray[np.generic], shape: Iterable[int] | None = None, code: int | None = None) -> bytes:
    """A TensorProto with raw data; shape and element type can be made to lie."""
    dims = b"".join(field(1, size) for size in (array.shape if shape is None else shape))
    kind = _CODES[array.dtype.str[1:]] if code is None else code
    return dims + field(2, kind) + field(8, name) + field(9, array.tobytes())


def external(name: str, shape: Iterable[int], **entries: str) -> bytes:
    """A float TensorProto whose data lies in another file: location, offset, length."""
    pairs = b"".join(field(13, field(1, key) + field(2, value)) for key, value in entries.items())
    return b"".join(field(1, size) for size in shape) + field(2, FLOAT) + field(8, name) + pairs + field(14, 1)


def port(name: str, shape: Iterable[int | str | None] | None, code: int = FLOAT) -> bytes:
    """A ValueInfoProto; a size is a number, a name or nothing; no shape leaves the rank open."""
    dims = b"" if shape is None else field(2, b"".join(field(1, _size(size)) for size in shape))
    return field(1, name) + field(2, field(1, field(1, code) + dims))


def _size(size: int | str | None) -> bytes:
    return b"" if size is None else field(1 if isinstance(size, int) else 2, size)


def attribute(name: str, value: int | float | str | bytes | list[int] | list[float]) -> bytes:
    """An AttributeProto; bytes are a TensorProto."""
    if isinstance(value, bytes):
        return field(1, name) + field(5, value) + field(20, 4)
    if isinstance(value, list):
        number, kind = (7, 6) if any(isinstance(item, float) for item in value) else (8, 7)
        return field(1, name) + b"".join(field(number, item) for item in value) + field(20, kind)
    number, kind = {int: (3, 2), float: (2, 1), str: (4, 3)}[type(value)]
    return field(1, name) + field(number, value) + field(20, kind)


def node(
    kind: str, inputs: str, outputs: str, domain: str = "", **attributes: int | float | str | bytes | list[int]
) -> bytes:
    """A NodeProto; names of inputs and outputs are separated by spaces, `-` is one left out."""
    names = [field(1, "" if name == "-" else name) for name in inputs.split()]
    made = [field(2, "" if name == "-" else name) for name in outputs.split()]
    given = [field(5, attribute(name, value)) for name, value in attributes.items()]
    return b"".join([*names, *made, field(3, f"/{kind}"), field(4, kind), *given, field(7, domain)])


def model(
    nodes: Iterable[bytes],
    inputs: Iterable[bytes],
    outputs: Iterable[str],
    tensors: Iterable[bytes] = (),
    opset: int = 17,
) -> bytes:
    """A ModelProto."""
    graph = [field(1, made) for made in nodes] + [field(2, "g")] + [field(5, made) for made in tensors]
    graph += [field(11, made) for made in inputs] + [field(12, port(name, None)) for name in outputs]
    return field(1, 8) + field(8, field(2, opset)) + field(7, b"".join(graph))
