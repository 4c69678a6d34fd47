"""The physical limit of decoding, as a contestant: it only reads, and as many bytes as a token needs."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.reading import Reader

_READS = 5


class MemoryReader:
    """`num_threads` threads that read a buffer of `num_bytes` bytes together, in the fastest way known here."""

    def __init__(self, num_bytes: int, num_threads: int) -> None:
        self._num_bytes = num_bytes
        self._reader = Reader(memoryview(bytearray(b"\1") * num_bytes), num_threads)
        self.pid = os.getpid()

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Seconds that `count` tokens take at least, the best of a few readings for each; other verbs do nothing."""
        if verb != "decode":
            return {}
        best = max(self._reader.bandwidth() for _ in range(_READS))
        return {"seconds": arguments["count"] * self._num_bytes / best}
