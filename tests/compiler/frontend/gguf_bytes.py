"""GGUF files byte by byte, right or wrong: what the tests of the reader feed it."""

from __future__ import annotations

import struct
from collections.abc import Iterable

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
_CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def string(text: str | bytes) -> bytes:
    """Length, then bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, given: object) -> bytes:
    """A value without its type."""
    if kind == STRING:
        assert isinstance(given, str | bytes)
        return string(given)
    return struct.pack("<" + _CODES[kind], given)


def key(name: str | bytes, kind: int, given: object) -> bytes:
    """One key with a scalar or string value."""
    return string(name) + struct.pack("<I", kind) + value(kind, given)


def array(name: str, item_kind: int, items: Iterable[object], count: int | None = None) -> bytes:
    """One key with an array; `count` overrides the number of items stated."""
    encoded = [value(item_kind, item) for item in items]
    stated = len(encoded) if count is None else count
    return string(name) + struct.pack("<IIQ", ARRAY, item_kind, stated) + b"".join(encoded)


def tensor(
    name: str | bytes, dims: Iterable[int], kind: int = 0, offset: int = 0, num_dims: int | None = None
) -> bytes:
    """One tensor's entry; dims innermost first, as in the file."""
    sizes = list(dims)
    stated = len(sizes) if num_dims is None else num_dims
    return string(name) + struct.pack(f"<I{len(sizes)}QIQ", stated, *sizes, kind, offset)


def gguf(
    keys: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_keys: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file; the counts can be made to lie."""
    keys, tensors = list(keys), list(tensors)
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    header = magic + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data
