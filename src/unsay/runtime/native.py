"""The executor that runs an image's machine code."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Sequence

from unsay.core import Batch, Float32View, Lane
from unsay.errors import RequestError
from unsay.image import ModelSpec
from unsay.isa.abi import StepArgs, sync_bytes
from unsay.isa.formats import padded_rows
from unsay.isa.scan import RowDraw, seen_bytes
from unsay.isa.targets import is_cpu_target
from unsay.runtime.buffers import address_of, anonymous
from unsay.runtime.cpu import prepare
from unsay.runtime.image import Image
from unsay.runtime.native_scan import NativeScan
from unsay.runtime.scan import draw_of
from unsay.runtime.threads import WorkerPool

MAX_ROWS = 64
_ROW_DRAW = struct.Struct("<fIII").pack_into
"""isa.scan.RowDraw."""


class NativeExecutor:
    """One native call per step, for the whole batch and on all threads. See runtime.executor.Executor."""

    def __init__(self, image: Image, kv_memory: memoryview, num_threads: int) -> None:
        manifest = image.manifest
        if not 1 <= num_threads <= manifest.max_threads:
            raise RequestError(f"num_threads {num_threads}: must be in 1..{manifest.max_threads}")
        pages = memoryview(kv_memory)
        assert pages.shape is not None and pages.shape[1:] == (manifest.spec.kv_layout.page_bytes,), pages.shape
        if is_cpu_target(manifest.target):  # of another, its back end has said that it runs here
            prepare(manifest.target)
        self._manifest = manifest
        self._arena = anonymous(manifest.arena_bytes)
        self._keep_alive = (image, pages)
        row_bytes, used_bytes = 4 * padded_rows(self.spec.vocab_size), 4 * self.spec.vocab_size
        logits = anonymous(MAX_ROWS * row_bytes)
        self._rows = [logits[n * row_bytes :][:used_bytes].cast("f") for n in range(MAX_ROWS)]
        self._inputs = [anonymous(4 * max(self.max_tokens, MAX_ROWS)).cast("i") for _ in range(4)]
        self._tables = anonymous(0)
        self._unmet = bytes(sync_bytes(num_threads))
        self._sync = anonymous(len(self._unmet))
        self._pool = WorkerPool(image.code, manifest.entry, num_threads)
        self._draws = anonymous(MAX_ROWS * ctypes.sizeof(RowDraw))
        self._seen = anonymous(MAX_ROWS * seen_bytes(self.spec.vocab_size))
        self.scan = NativeScan(image.code, manifest.entry, self.spec.vocab_size, self._seen)
        self._close = weakref.finalize(self, self._pool.close)
        self.interrupt_word = self._pool.interrupt_word
        self._args = StepArgs(
            persistent=address_of(image.weights),
            arena=address_of(self._arena),
            kv_pool=address_of(pages),
            logits=address_of(logits),
            sync=address_of(self._sync),
            draws=address_of(self._draws),
            seen=address_of(self._seen),
            token_ids=address_of(self._inputs[0]),
            positions=address_of(self._inputs[1]),
            sequence=address_of(self._inputs[2]),
            page_tables=address_of(self._tables),
            logit_rows=address_of(self._inputs[3]),
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

    def run(self, batch: Batch) -> list[Float32View] | None:
        """The R rows of logits [V], valid until the next run; None if it was interrupted."""
        num_tokens, num_rows = len(batch.token_ids), len(batch.logit_rows)
        assert 0 < num_tokens <= self.max_tokens and num_rows <= self.max_rows, (num_tokens, num_rows)
        self._sync[: len(self._unmet)] = self._unmet
        self._put(batch)
        self._ask(batch.lanes)
        if not self._pool.run(self._args):
            return None
        return self._rows[:num_rows]

    def close(self) -> None:
        """End the worker threads; idempotent. Memory goes with the executor."""
        self._close()

    def _put(self, batch: Batch) -> None:
        """Copy the batch to where the step looks for it: less than to ask for the addresses."""
        args, (token_ids, positions, sequence, logit_rows), tables = self._args, self._inputs, batch.page_tables
        args.num_tokens, args.num_rows = num_tokens, num_rows = len(batch.token_ids), len(batch.logit_rows)
        token_ids[:num_tokens], positions[:num_tokens] = batch.token_ids, batch.positions
        sequence[:num_tokens], logit_rows[:num_rows] = batch.sequence, batch.logit_rows
        args.num_sequences, args.page_stride = len(tables), tables.nbytes // (4 * len(tables))
        args.is_fast = batch.is_fast
        if tables.nbytes > len(self._tables):
            self._tables = anonymous(2 * tables.nbytes)
            args.page_tables = address_of(self._tables)
        self._tables[: tables.nbytes] = memoryview(tables).cast("B")

    def _ask(self, lanes: Sequence[Lane]) -> None:
        """Say what is to be noted of the rows."""
        self._args.num_seen = len(lanes)
        for number, lane in enumerate(lanes):
            draw = draw_of(lane)
            inverse, keys = (0.0, 0) if draw is None else (draw.inverse, draw.seed)
            _ROW_DRAW(self._draws, 16 * number, inverse, keys & 0xFFFFFFFF, keys >> 32, lane.position)
