"""Reading memory and nothing else, in the way that was fastest here: two streams a thread. NumPy's sum takes longer."""

from __future__ import annotations

import ctypes
import threading
from time import perf_counter

from unsay.compiler.codegen.amx_probe import mapped
from unsay.compiler.codegen.builder import I64, PTR, Function, Module, vector
from unsay.compiler.codegen.translate import ATTRIBUTES
from unsay.default_target import default_target
from unsay.isa.targets import find_target
from unsay.runtime.buffers import address_of

_STREAMS, _STRETCH_BYTES, _VECTOR_BYTES = 2, 256, 32
_SUMS = 4
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
        results = [ctypes.create_string_buffer(_SUMS * _VECTOR_BYTES) for _ in range(self._num_threads)]
        starts = range(address_of(self._memory), address_of(self._memory) + len(self._memory), _STREAMS * piece)
        threads = [
            threading.Thread(target=self._read, args=(start, piece, _ROUNDS, ctypes.addressof(result)))
            for start, result in zip(starts, results, strict=False)
        ]
        started = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(threads) * _STREAMS * piece * _ROUNDS / (perf_counter() - started)


def reading_module() -> tuple[Module, str]:
    """The loop `void read(memory, bytes of a stream, rounds, result)`, and its name: the streams lie one behind the
    other; all that is read is in the result, so that no load can be left out."""
    module, kind = Module(ATTRIBUTES), vector(I64, _VECTOR_BYTES // 8)

    def write(f: Function) -> None:
        sums = [f.slot(kind, 0) for _ in range(_SUMS)]
        with f.loop("round", 0, f["rounds"]), f.loop("at", 0, f["bytes"], _STRETCH_BYTES) as at:
            for stream in range(_STREAMS):
                start = f["memory"].at(f["bytes"] * stream).at(at)
                for place in range(0, _STRETCH_BYTES, _VECTOR_BYTES):
                    total = sums[place // _VECTOR_BYTES % _SUMS]
                    total.set(total.get() + f.load(kind, start.at(place)))
        for number, total in enumerate(sums):
            f.store(total.get(), f["result"].at(number * _VECTOR_BYTES))

    parameters = [(PTR, "memory"), (I64, "bytes"), (I64, "rounds"), (PTR, "result")]
    return module, module.define("read", parameters, write, "reads", linkage="", inline=False)
