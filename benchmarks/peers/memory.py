"""The physical limit of decoding, as a contestant: it only reads, and as many bytes as a token needs."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from unsay.benchmark.hardware import seconds_to_read

_READS = 5


class MemoryReader:
    """`num_threads` threads add up the words of a buffer of `num_bytes` bytes together."""

    def __init__(self, num_bytes: int, num_threads: int) -> None:
        self._parts = np.array_split(np.ones(num_bytes // 8, np.uint64), num_threads)
        self.pid = os.getpid()

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Seconds that `count` tokens take at least, the best of a few readings for each; other verbs do nothing."""
        if verb != "decode":
            return {}
        return {"seconds": arguments["count"] * min(seconds_to_read(self._parts) for _ in range(_READS))}
