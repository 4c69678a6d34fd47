"""Reading memory and nothing else, in the way that was fastest here: two streams a thread. NumPy's sum takes longer."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

from unsay.benchmark.hardware import seconds_together
from unsay.compiler.codegen.amx_probe import mapped
from unsay.compiler.codegen.builder import I64, PTR, Function, Module, Slot, Value, vector
from unsay.compiler.codegen.translate import ATTRIBUTES
from unsay.default_target import default_target
from unsay.isa.targets import find_target
from unsay.runtime.buffers import address_of

_STREAMS, _STRETCH_BYTES, _VECTOR_BYTES = 2, 256, 32
_SUMS = 4
SUM_BYTES = _SUMS * _VECTOR_BYTES
_ROUNDS = 3
"""Readings on end, so that starting the threads is little of the time."""


class Reader:
    """`num_threads` threads that read the same memory together, each its share."""

    def __init__(self, memory: memoryview, num_threads: int) -> None:
        self._code, entry = mapped(*reading_module(), find_target(default_target()))
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
        self._read = kind(address_of(self._code) + entry)
        self._memory, self._num_threads = memory, num_threads

    def bandwidth(self) -> float:
        """Bytes a second, of a few readings now."""
        piece = len(self._memory) // (self._num_threads * _STREAMS) // _STRETCH_BYTES * _STRETCH_BYTES
        results = [ctypes.create_string_buffer(SUM_BYTES) for _ in range(self._num_threads)]
        starts = range(address_of(self._memory), address_of(self._memory) + len(self._memory), _STREAMS * piece)
        work = [
            partial(self._read, start, piece, _ROUNDS, ctypes.addressof(result))
            for start, result in zip(starts, results, strict=False)
        ]
        return len(work) * _STREAMS * piece * _ROUNDS / seconds_together(work)


def reading_module() -> tuple[Module, str]:
    """The loop `void read(memory, bytes of a stream, rounds, result)`, and its name: the streams lie one behind the
    other; all that is read is in the result, so that no load can be left out."""
    module = Module(ATTRIBUTES)

    def write(f: Function) -> None:
        with added_up(f) as sums, f.loop("round", 0, f["rounds"]), f.loop("at", 0, f["bytes"], _STRETCH_BYTES) as at:
            for stream in range(_STREAMS):
                read(f["memory"].at(f["bytes"] * stream).at(at), _STRETCH_BYTES, sums)

    parameters = [(PTR, "memory"), (I64, "bytes"), (I64, "rounds"), (PTR, "result")]
    return module, module.define("read", parameters, write, "reads", linkage="", inline=False)


@contextmanager
def added_up(f: Function) -> Generator[list[Slot]]:
    """Sums for what is read inside, SUM_BYTES in f["result"] afterwards."""
    sums = [f.slot(vector(I64, _VECTOR_BYTES // 8), 0) for _ in range(_SUMS)]
    yield sums
    for number, total in enumerate(sums):
        f.store(total.get(), f["result"].at(number * _VECTOR_BYTES))


def read(start: Value, num_bytes: int, sums: list[Slot]) -> None:
    """Add what lies there to the sums: whole vectors."""
    for place in range(0, num_bytes, _VECTOR_BYTES):
        total = sums[place // _VECTOR_BYTES % _SUMS]
        total.set(total.get() + start.function.load(total.type, start.at(place)))
