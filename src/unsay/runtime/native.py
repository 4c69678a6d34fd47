"""The executor that runs an image's machine code."""

from __future__ import annotations

import mmap
import weakref

import numpy as np
from numpy.typing import NDArray

from unsay.core import Batch, Float32Array
from unsay.errors import RequestError
from unsay.image import ModelSpec
from unsay.isa.abi import StepArgs
from unsay.isa.formats import padded_rows
from unsay.isa.targets import is_cpu_target
from unsay.runtime.cpu import check_target
from unsay.runtime.image import Image
from unsay.runtime.native_scan import NativeScan
from unsay.runtime.threads import WorkerPool

MAX_ROWS = 64
_SYNC_BYTES = 256


class NativeExecutor:
    """One native call per step, for the whole batch and on all threads. See runtime.executor.Executor."""

    def __init__(self, image: Image, kv_memory: NDArray[np.uint8], num_threads: int) -> None:
        manifest = image.manifest
        if not 1 <= num_threads <= manifest.max_threads:
            raise RequestError(f"num_threads {num_threads}: must be in 1..{manifest.max_threads}")
        assert kv_memory.shape[1:] == (manifest.spec.kv_layout.page_bytes,) and kv_memory.flags.c_contiguous
        if is_cpu_target(manifest.target):  # of another, its back end has said that it runs here
            check_target(manifest.target)
        self._manifest = manifest
        self._keep_alive = (image, kv_memory)
        self._arena = _anonymous(manifest.arena_bytes)
        self._logits = _anonymous(MAX_ROWS * padded_rows(self.spec.vocab_size) * 4).view(np.float32)
        self._sync = _anonymous(mmap.PAGESIZE)
        self._pool = WorkerPool(image.code, manifest.entry, num_threads)
        self.scan = NativeScan(image.code, manifest.entry, self.spec.vocab_size)
        self._close = weakref.finalize(self, self._pool.close)
        self.interrupt, self.clear_interrupt = self._pool.interrupt, self._pool.clear_interrupt
        self._args = StepArgs(
            persistent=image.weights.ctypes.data,
            arena=self._arena.ctypes.data,
            kv_pool=kv_memory.ctypes.data,
            logits=self._logits.ctypes.data,
            sync=self._sync.ctypes.data,
        )

    @property
    def spec(self) -> ModelSpec:
        """Shape of the model that runs here."""
        return self._manifest.spec

    @property
    def max_tokens(self) -> int:
        """Most tokens (T) one batch may hold."""
        return self._manifest.max_tokens

    @property
    def max_rows(self) -> int:
        """Most logit rows (R) one batch may ask for."""
        return MAX_ROWS

    def run(self, batch: Batch) -> Float32Array | None:
        """Logits [R, V] float32, a view valid until the next run; None if it was interrupted."""
        num_tokens, num_rows = len(batch.token_ids), len(batch.logit_rows)
        assert 0 < num_tokens <= self.max_tokens and num_rows <= self.max_rows, (num_tokens, num_rows)
        self._sync[:_SYNC_BYTES] = 0
        self._point_at(batch)
        if not self._pool.run(self._args):
            return None
        stride = padded_rows(self.spec.vocab_size)
        return self._logits[: num_rows * stride].reshape(num_rows, stride)[:, : self.spec.vocab_size]

    def close(self) -> None:
        """End the worker threads; idempotent. Memory goes with the executor."""
        self._close()

    def _point_at(self, batch: Batch) -> None:
        args = self._args
        args.token_ids, args.positions = batch.token_ids.ctypes.data, batch.positions.ctypes.data
        args.sequence, args.page_tables = batch.sequence.ctypes.data, batch.page_tables.ctypes.data
        args.logit_rows = batch.logit_rows.ctypes.data
        args.num_tokens, args.num_rows = len(batch.token_ids), len(batch.logit_rows)
        args.num_sequences, args.page_stride = batch.page_tables.shape


def _anonymous(num_bytes: int) -> NDArray[np.uint8]:
    """Zeroed memory of whole pages, committed as it is touched."""
    return np.frombuffer(mmap.mmap(-1, max(num_bytes, mmap.PAGESIZE)), np.uint8)
