"""The flat 128-bit address space of a program: four regions, every access checked against their ends.

0x0 GLOBAL      [0, scratch)               activations of tensor instructions
                [2^63, ...)                the program: instructions, then data; read-only, zero copy
0x1 TEMPORAL    [0, logits)                the logits of the last step, f32
                [logits, logits + ring)    a ring of records from peripherals; the oldest give way to new ones
0x2 PERSISTENT  the packed weights, mapped, read-only
0x3 KV_CACHE    the pages of the pool, read-only: the tree alone writes them
"""

from __future__ import annotations

import mmap

import numpy as np
from numpy.typing import NDArray

from unsay.core import Float32Array
from unsay.errors import MachineError
from unsay.isa.address import PROGRAM_OFFSET, make_address, split_address
from unsay.isa.opcodes import Region
from unsay.isa.program import Program
from unsay.vm.records import Record, pack_record, read_record

SCRATCH_BYTES = 1 << 28
LOGITS_BYTES = 1 << 26
RING_BYTES = 1 << 20
RECORDS_OFFSET = 2**63

Bytes = NDArray[np.uint8]
_NOTHING = memoryview(b"")


class Memory:
    """The memory of one running program. weights, kv_pages: empty where there is no model."""

    def __init__(self, program: Program, weights: memoryview = _NOTHING, kv_pages: memoryview = _NOTHING) -> None:
        code = b"".join(instruction.encode() for instruction in program)
        self._scratch = _anonymous(SCRATCH_BYTES)
        self._logits = _anonymous(LOGITS_BYTES)
        self._ring = _anonymous(RING_BYTES)
        self._segments: dict[Region, list[tuple[int, Bytes]]] = {
            Region.GLOBAL: [(0, self._scratch), (PROGRAM_OFFSET, np.frombuffer(code + program.data, np.uint8))],
            Region.TEMPORAL: [(0, self._logits)],
            Region.PERSISTENT: [(0, _read_only(weights))],
            Region.KV_CACHE: [(0, _read_only(kv_pages))],
        }
        self._live: set[int] = set()
        self._next = RECORDS_OFFSET

    def find(self, region: Region, offset: int) -> Bytes:
        """The bytes from `offset` to the end of their segment; raises MachineError where there are none."""
        for start, segment in self._segments[region]:
            if start <= offset < start + len(segment):
                return segment[offset - start :]
        ends = ", ".join(f"{start:#x}..{start + len(segment):#x}" for start, segment in self._segments[region])
        raise MachineError(f"offset {offset:#x} of {region.name} is outside its memory ({ends})")

    def view(self, address: int, num_bytes: int) -> Bytes:
        """`num_bytes` at an address; raises MachineError if they do not lie within one segment."""
        region, offset = split_address(address)
        found = self.find(region, offset)
        if num_bytes > len(found):
            raise MachineError(f"{num_bytes} bytes at {address:#034x}: {region.name} ends after {len(found)}")
        return found[:num_bytes]

    def deliver(self, record: Record) -> int:
        """Put a record into the ring; its address."""
        data = pack_record(record.target, record.token_ids)
        if len(data) > RING_BYTES:
            raise MachineError(
                f"a record of {len(record.token_ids)} tokens does not fit the ring of {RING_BYTES} bytes"
            )
        place = self._next % RING_BYTES
        start = self._next if place + len(data) <= RING_BYTES else self._next + RING_BYTES - place
        self._next = start + len(data)
        self._live = {at for at in self._live if at >= self._next - RING_BYTES}
        self._live.add(start)
        self._ring[start % RING_BYTES :][: len(data)] = np.frombuffer(data, np.uint8)
        return make_address(Region.TEMPORAL, start)

    def record(self, address: int) -> Record:
        """The record at an address that `deliver` gave, or in the program's data."""
        region, offset = split_address(address)
        if region is Region.GLOBAL and offset >= PROGRAM_OFFSET:
            return read_record(self.find(region, offset))
        if region is not Region.TEMPORAL or offset not in self._live:
            raise MachineError(f"no record at {address:#034x}: it was never there, or newer ones took its place")
        return read_record(self._ring[offset % RING_BYTES :])

    def write_logits(self, logits: Float32Array) -> int:
        """Keep the logits [V] of a step; their address. Raises MachineError for more than there is room for."""
        data = logits.reshape(-1).view(np.uint8)
        if len(data) > LOGITS_BYTES:
            raise MachineError(f"{len(data)} bytes of logits where there is room for {LOGITS_BYTES}")
        self._logits[: len(data)] = data
        return make_address(Region.TEMPORAL, 0)


def _anonymous(num_bytes: int) -> Bytes:
    """Zeros that cost nothing until touched."""
    return np.frombuffer(mmap.mmap(-1, num_bytes), np.uint8)


def _read_only(memory: memoryview) -> Bytes:
    return np.frombuffer(memoryview(memory).toreadonly(), np.uint8)
