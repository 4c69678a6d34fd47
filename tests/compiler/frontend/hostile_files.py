"""Model files made to do harm: wrong counts, lengths, offsets and types, and the largest header the reader takes."""

from __future__ import annotations

import struct

from tests.compiler.frontend.gguf_bytes import ARRAY, STRING, U8, U32, U64, array, gguf, key, string, tensor
from unsay.compiler.frontend.gguf import MAX_ARRAYS, MAX_KEYS, MAX_STRINGS, MAX_TENSORS

BIG = (2**31, 2**32, 2**63, 2**64 - 1)


def nested(depth: int) -> bytes:
    """A key whose value is arrays in arrays, `depth` deep under the outermost."""
    inner = b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(depth))
    return string("nested") + struct.pack("<I", ARRAY) + inner + struct.pack("<IQ", U8, 1) + b"\0"


def arrays(name: str, count: int) -> bytes:
    """A key whose value is an array of empty arrays."""
    return string(name) + struct.pack("<IIQ", ARRAY, ARRAY, count) + struct.pack("<IQ", U8, 0) * count


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "magic only": b"GGUF",
    "23 bytes": gguf()[:23],
    "another magic": gguf(magic=b"GGML"),
    "zip file": b"PK\3\4" + bytes(100),
    "43 bytes that claim 2^63 strings": gguf([array("k", STRING, [], 2**63)], alignment=1)[:43],
    "kind 13": gguf([string("k") + struct.pack("<I", 13) + bytes(8)]),
    "kind 2^32-1": gguf([string("k") + struct.pack("<I", 2**32 - 1) + bytes(8)]),
    "array of kind 13": gguf([string("k") + struct.pack("<IIQ", ARRAY, 13, 1) + bytes(8)]),
    "empty key": gguf([key("", U8, 0)], data=bytes(64)),
    "key not utf-8": gguf([key(b"\xff\xfe", U8, 0)], data=bytes(64)),
    "key of 65536 bytes": gguf([key("k" * 65536, U8, 0)]),
    "duplicate key": gguf([key("k", U8, 0), key("k", U8, 0)]),
    "duplicate tensor": gguf([], [tensor("t", [8]), tensor("t", [8], offset=32)], bytes(64)),
    "empty tensor name": gguf([], [tensor("", [8])], bytes(64)),
    "tensor name of 129 bytes": gguf([], [tensor("t" * 129, [8])], bytes(64)),
    "tensor name not utf-8": gguf([], [tensor(b"\xc0\x80", [8])], bytes(64)),
    "nested beyond the limit": gguf([nested(5)]),
    "nested 100000 deep": gguf([nested(100_000)]),
    "no dims": gguf([], [tensor("t", [])], bytes(64)),
    "5 dims": gguf([], [tensor("t", [1, 1, 1, 1, 1])], bytes(64)),
    "2^32-1 dims": gguf([], [tensor("t", [1], num_dims=2**32 - 1)], bytes(64)),
    "dim 0": gguf([], [tensor("t", [0])], bytes(64)),
    "dim 0 outside": gguf([], [tensor("t", [32, 0])], bytes(64)),
    "product wraps to 0": gguf([], [tensor("t", [2**32, 2**32])], bytes(64)),
    "product wraps to 32": gguf([], [tensor("t", [2**33, 2**31, 32])], bytes(64)),
    "product wraps to 8 in 4 dims": gguf([], [tensor("t", [2**61 + 1, 8, 1, 1])], bytes(64)),
    "block divides not": gguf([], [tensor("t", [33], 2)], bytes(64)),
    "data past the end": gguf([], [tensor("t", [16])], bytes(63)),
    "offset past the end": gguf([], [tensor("t", [8], offset=64)], bytes(64)),
    "offset misaligned": gguf([], [tensor("t", [8], offset=4)], bytes(64)),
    "tensors overlap": gguf([], [tensor("a", [16]), tensor("b", [8], offset=32)], bytes(64)),
    "tensors on one place": gguf([], [tensor("a", [8]), tensor("b", [8])], bytes(64)),
    "alignment 0": gguf([key("general.alignment", U32, 0)]),
    "alignment 24": gguf([key("general.alignment", U32, 24)]),
    "alignment 2^31": gguf([key("general.alignment", U32, 2**31)]),
    "alignment is text": gguf([key("general.alignment", STRING, "32")]),
}
for big in BIG:
    HOSTILE |= {
        f"{big} keys": gguf(num_keys=big, data=bytes(256)),
        f"{big} tensors": gguf(num_tensors=big, data=bytes(256)),
        f"key of {big} bytes": gguf([struct.pack("<Q", big)], data=bytes(64)),
        f"string of {big} bytes": gguf([string("k") + struct.pack("<IQ", STRING, big)], data=bytes(64)),
        f"{big} strings": gguf([array("k", STRING, ["a", "b"], big)], data=bytes(64)),
        f"{big} bytes in an array": gguf([array("k", U8, [1, 2], big)], data=bytes(64)),
        f"{big} u64 in an array": gguf([array("k", U64, [1, 2], big)], data=bytes(64)),
        f"{big} arrays in an array": gguf([string("k") + struct.pack("<IIQ", ARRAY, ARRAY, big)], data=bytes(64)),
        f"second string of {big} bytes": gguf(
            [string("k") + struct.pack("<IIQ", ARRAY, STRING, 3) + string("a") + struct.pack("<Q", big)], data=bytes(64)
        ),
        f"tensor name of {big} bytes": gguf([], [struct.pack("<Q", big)], bytes(64)),
        f"dim {big}": gguf([], [tensor("t", [big])], bytes(64)),
        f"dims {big} twice": gguf([], [tensor("t", [big, big])], bytes(64)),
        f"offset {big}": gguf([], [tensor("t", [8], offset=big - big % 32)], bytes(64)),
    }

LARGEST: dict[str, bytes] = {
    "keys": gguf([key(f"k{index}", U8, 0) for index in range(MAX_KEYS)]),
    "tensors": gguf(
        [], [tensor(f"t{index}", [1], offset=32 * index) for index in range(MAX_TENSORS)], bytes(32 * MAX_TENSORS)
    ),
    "strings": gguf([array("k", STRING, [""] * MAX_STRINGS)]),
    "arrays": gguf([arrays("k", MAX_ARRAYS)]),
    "strings, then cut off": gguf([array("k", STRING, [""] * MAX_STRINGS), string("end") + bytes(4)]),
}
"""As many of each thing as are read. All but the last are valid."""
