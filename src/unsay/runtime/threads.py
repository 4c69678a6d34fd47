"""A pool of threads that live in native code: each waits there for a step, does its part, and waits again.

Waiting is a short spin, then a futex, so an idle pool uses no CPU. Python sees the threads only at start and end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from contextlib import suppress

from unsay.isa.abi import PoolState, StepArgs
from unsay.runtime.buffers import address_of, anonymous

_VOID_POOL_INDEX = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
_INT_POOL_ARGS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_VOID_POOL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class WorkerPool:
    """`num_threads` threads for steps, of which the caller of `run` is one. Not re-entrant.

    interrupt_word: as runtime.executor.Executor's.
    A forked child has no workers of its parent: the pool starts new ones at the child's first step.
    """

    def __init__(self, code: mmap.mmap, entry: dict[str, int], num_threads: int) -> None:
        assert num_threads >= 1, num_threads
        self.num_threads = num_threads
        self._code = code
        base = address_of(code)
        self._worker = _VOID_POOL_INDEX(base + entry["worker"])
        self._run = _INT_POOL_ARGS(base + entry["run"])
        self._close = _VOID_POOL(base + entry["close"])
        self._state = anonymous(mmap.PAGESIZE)
        self._state_address = address_of(self._state)
        self.interrupt_word = self._state[PoolState.interrupt.offset :][:4].cast("i")
        self._threads: list[threading.Thread] = []
        self._start()

    def run(self, args: StepArgs) -> bool:
        """One step on all threads; False if it was interrupted."""
        if self._process != os.getpid():
            self._start()
        assert self._threads or self.num_threads == 1, "the pool is closed"
        args.num_threads = self.num_threads
        args.interrupt = self._state_address + PoolState.interrupt.offset
        return self._run(self._state_address, ctypes.addressof(args)) == 0

    def close(self) -> None:
        """End the workers; idempotent."""
        if self._process == os.getpid():
            self._close(self._state_address)
            for thread in self._threads:
                thread.join()
        self._threads = []

    def _live(self, index: int) -> None:
        """A worker's life. As a batch job: when it wakes up it takes no core from a thread that is about to stop it."""
        with suppress(OSError):  # a wish: an idle job, or one in a sandbox, may not choose
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        self._worker(self._state_address, index)

    def _start(self) -> None:
        self._process = os.getpid()
        ctypes.memset(self._state_address, 0, ctypes.sizeof(PoolState))
        self._threads = [
            threading.Thread(target=self._live, args=(index,), name=f"unsay-{index}", daemon=True)
            for index in range(1, self.num_threads)
        ]
        for thread in self._threads:
            thread.start()
