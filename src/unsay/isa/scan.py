"""How a row of logits is looked at (docs/numerics.md N12, N13): what the machine code and its caller agree on."""

from __future__ import annotations

import ctypes

PART_TOKENS = 1024
"""Tokens of a row that are summed up in one figure."""

SCAN_TOKENS = 32
"""Tokens the machine code takes at a time: rows are filled up to a multiple with -inf."""


class RowDraw(ctypes.Structure):
    """What a step is to draw from a row: nothing where `inverse` is 0. key0, key1: low and high half of the seed."""

    _fields_ = (
        ("inverse", ctypes.c_float),
        ("key0", ctypes.c_uint32),
        ("key1", ctypes.c_uint32),
        ("position", ctypes.c_uint32),
    )


class RowSeen(ctypes.Structure):
    """What a step has seen of a row; behind it come its PartSeen. See runtime.scan.Glance for what the fields mean."""

    _fields_ = (
        ("largest", ctypes.c_float),
        ("likeliest", ctypes.c_int32),
        ("total", ctypes.c_double),
        ("bound", ctypes.c_float),
        ("next_bound", ctypes.c_float),
        ("leader", ctypes.c_int32),
        ("word", ctypes.c_uint32),
    )


class PartSeen(ctypes.Structure):
    """The same of a part of it."""

    _fields_ = (
        ("largest", ctypes.c_float),
        ("likeliest", ctypes.c_int32),
        ("weight", ctypes.c_float),
        ("bound", ctypes.c_float),
        ("next_bound", ctypes.c_float),
        ("leader", ctypes.c_int32),
        ("word", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


def num_parts(num_tokens: int) -> int:
    """Parts of a row."""
    return -(-num_tokens // PART_TOKENS)


def seen_bytes(num_tokens: int) -> int:
    """Bytes that are noted of a row."""
    return ctypes.sizeof(RowSeen) + num_parts(num_tokens) * ctypes.sizeof(PartSeen)
