"""The executor that runs an image's machine code."""

from __future__ import annotations

import ctypes
import mmap
import struct
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unsay.core import Batch, Float32Array, Lane
from unsay.errors import RequestError
from unsay.image import ModelSpec
from unsay.isa.abi import StepArgs
from unsay.isa.formats import padded_rows
from unsay.isa.scan import RowDraw, seen_bytes
from unsay.isa.targets import is_cpu_target
from unsay.runtime.cpu import check_target
from unsay.runtime.image import Image
from unsay.runtime.native_scan import NativeScan
from unsay.runtime.scan import draw_of
from unsay.runtime.threads import WorkerPool

MAX_ROWS = 64
_SYNC_BYTES = 256
_ROW_DRAW = struct.Struct("<fIII").pack_into
"""isa.scan.RowDraw."""


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
        stride = padded_rows(self.spec.vocab_size)
        logits = _anonymous(MAX_ROWS * stride * 4).view(np.float32).reshape(-1)[: MAX_ROWS * stride]
        self._logits = logits.reshape(MAX_ROWS, stride)[:, : self.spec.vocab_size]
        self._inputs = np.zeros((4, max(self.max_tokens, MAX_ROWS)), np.int32)
        self._tables = np.zeros(0, np.int32)
        self._sync = _anonymous(mmap.PAGESIZE)
        self._pool = WorkerPool(image.code, manifest.entry, num_threads)
        self._draws = _anonymous(MAX_ROWS * ctypes.sizeof(RowDraw))
        self._seen = _anonymous(MAX_ROWS * seen_bytes(self.spec.vocab_size))
        self.scan = NativeScan(image.code, manifest.entry, self.spec.vocab_size, self._seen.data)
        self._close = weakref.finalize(self, self._pool.close)
        self.interrupt, self.clear_interrupt = self._pool.interrupt, self._pool.clear_interrupt
        self._args = StepArgs(
            persistent=image.weights.ctypes.data,
            arena=self._arena.ctypes.data,
            kv_pool=kv_memory.ctypes.data,
            logits=logits.ctypes.data,
            sync=self._sync.ctypes.data,
            draws=self._draws.ctypes.data,
            seen=self._seen.ctypes.data,
            token_ids=self._inputs[0].ctypes.data,
            positions=self._inputs[1].ctypes.data,
            sequence=self._inputs[2].ctypes.data,
            logit_rows=self._inputs[3].ctypes.data,
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
        self._put(batch)
        self._ask(batch.lanes)
        if not self._pool.run(self._args):
            return None
        return self._logits[:num_rows]

    def close(self) -> None:
        """End the worker threads; idempotent. Memory goes with the executor."""
        self._close()

    def _put(self, batch: Batch) -> None:
        """Copy the arrays to where the step looks for them: less than to ask NumPy for their addresses."""
        args, (token_ids, positions, sequence, logit_rows), tables = self._args, self._inputs, batch.page_tables
        args.num_tokens, args.num_rows = num_tokens, num_rows = len(batch.token_ids), len(batch.logit_rows)
        token_ids[:num_tokens], positions[:num_tokens] = batch.token_ids, batch.positions
        sequence[:num_tokens], logit_rows[:num_rows] = batch.sequence, batch.logit_rows
        args.num_sequences, args.page_stride = tables.shape
        args.is_fast = batch.is_fast
        if tables.size > self._tables.size:
            self._tables = np.zeros(2 * tables.size, np.int32)
            args.page_tables = self._tables.ctypes.data
        self._tables[: tables.size] = tables.reshape(-1)

    def _ask(self, lanes: Sequence[Lane]) -> None:
        """Say what is to be noted of the rows."""
        self._args.num_seen = len(lanes)
        for number, lane in enumerate(lanes):
            draw = draw_of(lane)
            inverse, keys = (0.0, 0) if draw is None else (draw.inverse, draw.seed)
            _ROW_DRAW(self._draws.data, 16 * number, inverse, keys & 0xFFFFFFFF, keys >> 32, lane.position)


def _anonymous(num_bytes: int) -> NDArray[np.uint8]:
    """Zeroed memory of whole pages, committed as it is touched; a forked child has its own."""
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return np.frombuffer(mmap.mmap(-1, max(num_bytes, mmap.PAGESIZE), flags=private), np.uint8)
