"""What a figure was measured on, and what the machine could do at best."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from time import perf_counter

import numpy as np

from unsay.cores import usable_cores
from unsay.runtime.cpu import probe

_SAMPLE_BYTES = 256 << 20
_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Hardware:
    """read_bandwidth: bytes a second that `cores` threads read from memory together, the best of a few tries. load:
    processes that wanted to run during the minute before; well above 0 the figures are of a busy machine."""

    cpu: str
    cores: int
    memory_bytes: int
    read_bandwidth: float
    load: float
    kernel: str
    python: str
    numpy: str
    unsay: str


def describe() -> Hardware:
    """This machine; takes about a second."""
    cores = usable_cores()
    return Hardware(
        cpu=probe().name,
        cores=cores,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        read_bandwidth=read_bandwidth(cores),
        load=os.getloadavg()[0],
        kernel=platform.release(),
        python=platform.python_version(),
        numpy=np.__version__,
        unsay=version("unsay"),
    )


def read_bandwidth(num_threads: int, num_bytes: int = _SAMPLE_BYTES) -> float:
    """Bytes a second that sums over an array read; by default one far larger than any cache."""
    numbers = np.ones(num_bytes // 8, np.uint64)
    parts = np.array_split(numbers, num_threads)
    return num_bytes / min(seconds_together(partial(np.add.reduce, part) for part in parts) for _ in range(_REPEATS))


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def seconds_together(work: Iterable[Callable[[], object]]) -> float:
    """Seconds until all of it is done, each in a thread of its own."""
    threads = [threading.Thread(target=one) for one in work]
    started = perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return perf_counter() - started
