"""Records in memory: what peripherals deliver, ABORT obeys and STREAM INJECT appends.

    target i64 | count u32 | token i32 x count        little-endian, at a multiple of 4 bytes

target: the position a correction goes back to; NO_TARGET where the record is input to append, nothing to roll back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsay.errors import MachineError

NO_TARGET = -1
_HEAD = struct.Struct("<qI")


@dataclass(frozen=True, slots=True)
class Record:
    """A record as values."""

    target: int
    token_ids: tuple[int, ...]


def pack_record(target: int, token_ids: Sequence[int]) -> bytes:
    """The bytes of a record; raises struct.error for what does not fit."""
    return _HEAD.pack(target, len(token_ids)) + struct.pack(f"<{len(token_ids)}i", *token_ids)


def read_record(memory: NDArray[np.uint8]) -> Record:
    """The record at the start of `memory`, which ends where its region ends."""
    if len(memory) < _HEAD.size:
        raise MachineError(f"a record of at least {_HEAD.size} bytes where {len(memory)} are left")
    target, count = _HEAD.unpack(memory[: _HEAD.size].tobytes())
    if count > (len(memory) - _HEAD.size) // 4:
        raise MachineError(f"a record of {count} tokens where there is room for {(len(memory) - _HEAD.size) // 4}")
    token_ids = memory[_HEAD.size : _HEAD.size + 4 * count].view(np.int32)
    return Record(target, tuple(token_ids.tolist()))
