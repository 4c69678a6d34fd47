"""A pool of threads that live in native code: each waits there for a step, does its part, and waits again.

Waiting is a short spin, then a futex, so an idle pool uses no CPU. Python sees the threads only at start and end.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading

import numpy as np

from unsay.isa.abi import PoolState, StepArgs

_VOID_POOL_INDEX = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
_INT_POOL_ARGS = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
_VOID_POOL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_VOID_POOL_KEEPING_GIL = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_EXPECTED = 2


class WorkerPool:
    """`num_threads` threads for steps, of which the caller of `run` is one. Not re-entrant.

    A forked child has no workers of its parent: the pool starts new ones at the child's first step.
    """

    def __init__(self, code: mmap.mmap, entry: dict[str, int], num_threads: int) -> None:
        assert num_threads >= 1, num_threads
        self.num_threads = num_threads
        self._code = code
        base = _address(code)
        self._worker = _VOID_POOL_INDEX(base + entry["worker"])
        self._run = _INT_POOL_ARGS(base + entry["run"])
        self._leave = _VOID_POOL_KEEPING_GIL(base + entry["leave"])
        self._close = _VOID_POOL(base + entry["close"])
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

    def expect(self, is_expected: bool) -> None:
        """A run will follow, or will not after all."""
        self._state.busy = _EXPECTED if is_expected else 0

    def interrupt(self) -> None:
        """Make the run in progress (or else the next one) stop between two tiles."""
        self._state.interrupt = 1

    def clear_interrupt(self) -> None:
        """Forget an interrupt."""
        self._state.interrupt = 0

    def stop(self) -> bool:
        """Interrupt, and wait for the run in progress to be out of native code; False if one is still to begin.

        The interpreter is kept meanwhile: the thread whose run it is stays out, and so nobody has to wake it up.
        """
        state = self._state
        state.interrupt = 1
        if state.busy == _EXPECTED:
            return False
        self._leave(self._state_address)
        return True

    def close(self) -> None:
        """End the workers; idempotent."""
        if self._process == os.getpid():
            self._close(self._state_address)
            for thread in self._threads:
                thread.join()
        self._threads = []

    def _live(self, index: int) -> None:
        """A worker's life. As a batch job: when it wakes up it takes no core from a thread that is about to stop it."""
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        self._worker(self._state_address, index)

    def _start(self) -> None:
        self._process = os.getpid()
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._state = PoolState.from_buffer(self._memory)
        self._state_address = ctypes.addressof(self._state)
        self._threads = [
            threading.Thread(target=self._live, args=(index,), name=f"unsay-{index}", daemon=True)
            for index in range(1, self.num_threads)
        ]
        for thread in self._threads:
            thread.start()


def _address(memory: mmap.mmap) -> int:
    """Where a mapping lies; ctypes refuses read-only buffers, NumPy does not."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)
