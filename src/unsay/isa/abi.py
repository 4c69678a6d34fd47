"""What the native step and its caller agree on: the argument block and the layout of a KV page.

A page holds P = 16 tokens of one sequence, all layers, f16:

    page [L][K]{ keys [D][P] | values [P][D] }          keys are transposed: one vector is one dim of 16 tokens

Rows at and beyond a context's length hold garbage and are never read for their value.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from unsay.core import PAGE_TOKENS

_OS_PAGE_BYTES = 4096


class StepArgs(ctypes.Structure):
    """Argument of the native entry `i32 step(StepArgs*, i32 thread)`; every pointer is 64-byte aligned storage.

    Returns 0 when the step ran to its end, 1 when the interrupt word was seen (nothing is committed then).
    token_ids, positions, sequence: i32 [T]; page_tables: i32 [B][page_stride]; logit_rows: i32 [R];
    logits: f32 [R][padded V]; interrupt: i32, non-zero stops the step; sync: 256 zeroed bytes of the step's own.
    """

    _fields_ = (
        ("persistent", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("kv_pool", ctypes.c_void_p),
        ("logits", ctypes.c_void_p),
        ("token_ids", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("sequence", ctypes.c_void_p),
        ("page_tables", ctypes.c_void_p),
        ("logit_rows", ctypes.c_void_p),
        ("interrupt", ctypes.c_void_p),
        ("sync", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int32),
        ("num_sequences", ctypes.c_int32),
        ("num_rows", ctypes.c_int32),
        ("page_stride", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class PoolState(ctypes.Structure):
    """What the native `run`, `worker` and `close` share: zeroed by the owner, 64-byte aligned, alive until all left.

    generation moves once per step (and at close), done counts workers that finished it; sleepers and waiting count
    who is asleep on each; closing sends workers home.
    """

    _fields_ = (
        ("args", ctypes.c_void_p),
        ("pad0", ctypes.c_uint8 * 56),
        ("generation", ctypes.c_int32),
        ("sleepers", ctypes.c_int32),
        ("closing", ctypes.c_int32),
        ("pad1", ctypes.c_uint8 * 52),
        ("done", ctypes.c_int32),
        ("waiting", ctypes.c_int32),
        ("pad2", ctypes.c_uint8 * 56),
    )


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Byte offsets inside a KV page."""

    num_layers: int
    num_kv_heads: int
    head_dim: int

    @property
    def head_bytes(self) -> int:
        """Keys and values of one head of one layer."""
        return 2 * self.head_dim * PAGE_TOKENS * 2

    @property
    def used_bytes(self) -> int:
        """Bytes of a page that hold keys and values."""
        return self.num_layers * self.num_kv_heads * self.head_bytes

    @property
    def page_bytes(self) -> int:
        """Distance between pages in the pool: whole pages of the operating system, so a page can be given back."""
        return -(-self.used_bytes // _OS_PAGE_BYTES) * _OS_PAGE_BYTES

    def key_offset(self, layer: int, head: int) -> int:
        """Offset of keys f16 [D][P]."""
        return (layer * self.num_kv_heads + head) * self.head_bytes

    def value_offset(self, layer: int, head: int) -> int:
        """Offset of values f16 [P][D]."""
        return self.key_offset(layer, head) + self.head_dim * PAGE_TOKENS * 2
