"""runtime.scan.Scan in an image's machine code (compiler/codegen/kernels/scan.py)."""

from __future__ import annotations

import ctypes
import mmap
import struct

import numpy as np

from unsay.core import Float32Array
from unsay.isa.scan import PART_TOKENS, SCAN_TOKENS, seen_bytes
from unsay.runtime.scan import Draw, Glance, Race, Survey

_SURVEY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p)
_RACE = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p, ctypes.c_int64,
    ctypes.c_float, ctypes.c_float, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32,
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip


_ROW_SEEN = struct.Struct("<fidffiI").unpack_from
"""isa.scan.RowSeen."""


class NativeScan:
    """Rows of one length, one at a time. Not re-entrant. seen: what the step notes of its rows (isa/scan.py)."""

    def __init__(self, code: mmap.mmap, entry: dict[str, int], num_tokens: int, seen: memoryview) -> None:
        base = int(np.frombuffer(code, np.uint8).ctypes.data)
        self._keep_alive = code
        self._survey, self._race = _SURVEY(base + entry["survey"]), _RACE(base + entry["race"])
        self._num_tokens = num_tokens
        self._seen, self._seen_bytes = seen, seen_bytes(num_tokens)
        self._count = -(-num_tokens // SCAN_TOKENS) * SCAN_TOKENS
        self._filled = np.full(self._count, -np.inf, np.float32)
        num_parts = -(-num_tokens // PART_TOKENS)
        self._surveyed = Survey(np.empty(num_parts, np.float32), np.empty(num_parts, np.float32))
        words, bounds = np.empty(self._count, np.uint32), np.empty(self._count, np.float32)
        self._raced = Race(words[:num_tokens], bounds[:num_tokens], np.empty(num_parts, np.float32))
        self._survey_out = [array.ctypes.data for array in self._surveyed]
        self._race_out = [array.ctypes.data for array in (words, bounds, self._raced.reach)]

    def glance(self, number: int, logits: Float32Array, draw: Draw | None) -> Glance:
        """As the step noted it."""
        largest, likeliest, total, bound, next_bound, leader, word = _ROW_SEEN(self._seen, number * self._seen_bytes)
        return Glance(largest, likeliest, total, bound, next_bound, leader, word)

    def survey(self, scores: Float32Array, inverse: float) -> Survey:
        """N12."""
        row = self._whole(scores)
        self._survey(row.ctypes.data, self._count, inverse, *self._survey_out)
        return self._surveyed

    def race(self, scores: Float32Array, draw: Draw) -> Race:
        """N13."""
        row = self._whole(scores)
        keys = draw.seed & 0xFFFFFFFF, draw.seed >> 32, draw.position
        self._race(row.ctypes.data, self._count, draw.shift, draw.inverse, *keys, *self._race_out)
        return self._raced

    def _whole(self, row: Float32Array) -> Float32Array:
        """The row, or a copy that is filled up."""
        assert row.shape == (self._num_tokens,) and row.dtype == np.float32, (row.shape, row.dtype)
        if row.size == self._count and row.flags.c_contiguous:
            return row
        self._filled[: row.size] = row
        return self._filled
