"""runtime.scan.Scan in an image's machine code (compiler/codegen/kernels/scan.py)."""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
from typing import cast

from unsay.core import Float32View
from unsay.isa.scan import SCAN_TOKENS, num_parts, seen_bytes
from unsay.runtime.buffers import address_of, anonymous
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
        base = address_of(code)
        self._keep_alive = code
        self._survey, self._race = _SURVEY(base + entry["survey"]), _RACE(base + entry["race"])
        self._num_tokens = num_tokens
        self._seen, self._seen_bytes = seen, seen_bytes(num_tokens)
        self._count = -(-num_tokens // SCAN_TOKENS) * SCAN_TOKENS
        self._filled = _floats(self._count)
        for place in range(num_tokens, self._count):
            self._filled[place] = -math.inf
        parts = num_parts(num_tokens)
        self._surveyed = Survey(_floats(parts), _floats(parts))
        words, bounds = _floats(self._count).cast("B").cast("I"), _floats(self._count)
        self._raced = Race(words[:num_tokens], bounds[:num_tokens], _floats(parts))
        self._survey_out = [address_of(out) for out in self._surveyed]
        self._race_out = [address_of(out) for out in self._raced]

    def glance(self, number: int, logits: Float32View, draw: Draw | None) -> Glance:
        """As the step noted it."""
        largest, likeliest, total, bound, next_bound, leader, word = _ROW_SEEN(self._seen, number * self._seen_bytes)
        return Glance(largest, likeliest, total, bound, next_bound, leader, word)

    def survey(self, scores: Float32View, inverse: float) -> Survey:
        """N12."""
        row = self._whole(scores)
        self._survey(address_of(row), self._count, inverse, *self._survey_out)
        return self._surveyed

    def race(self, scores: Float32View, draw: Draw) -> Race:
        """N13."""
        row = self._whole(scores)
        keys = draw.seed & 0xFFFFFFFF, draw.seed >> 32, draw.position
        self._race(address_of(row), self._count, draw.shift, draw.inverse, *keys, *self._race_out)
        return self._raced

    def _whole(self, scores: Float32View) -> Float32View:
        """The row, or a copy that is filled up and in one piece."""
        row = cast(Float32View, memoryview(scores))
        assert row.shape == (self._num_tokens,) and row.format == "f", (row.shape, row.format)
        if len(row) == self._count and row.c_contiguous:
            return row
        self._filled[: len(row)] = row
        return self._filled


def _floats(count: int) -> Float32View:
    return anonymous(4 * count)[: 4 * count].cast("f")
