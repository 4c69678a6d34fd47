"""What the native step and its caller agree on: the argument block. The pages of keys and values are in isa/kv.py."""

from __future__ import annotations

import ctypes


def sync_bytes(num_threads: int) -> int:
    """Of where the threads of a step meet (compiler/codegen/kernels/sync.py): three cache lines, and one for each."""
    return 192 + 64 * num_threads


class StepArgs(ctypes.Structure):
    """Argument of the native entry `i32 step(StepArgs*, i32 thread)`; every pointer is 64-byte aligned storage.

    Returns 0 when the step ran to its end, 1 when the interrupt word was seen (nothing is committed then).
    token_ids, positions, sequence: i32 [T]; page_tables: i32 [B][page_stride]; logit_rows: i32 [R];
    is_fast: whether the tokens are of the fast class; an image that has no step for it does not look.
    logits: f32 [R][padded V]; interrupt: i32, non-zero stops the step;
    sync: sync_bytes(num_threads) zeroed bytes of the step's own.
    draws: isa.scan.RowDraw [num_seen]; seen: [num_seen][isa.scan.seen_bytes(V)], written for the first num_seen rows.
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
        ("draws", ctypes.c_void_p),
        ("seen", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int32),
        ("num_sequences", ctypes.c_int32),
        ("num_rows", ctypes.c_int32),
        ("page_stride", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
        ("num_seen", ctypes.c_int32),
        ("is_fast", ctypes.c_int32),
    )


class PoolState(ctypes.Structure):
    """What the native `run`, `worker` and `close` share: zeroed by the owner, 64-byte aligned, alive until all left.

    generation moves once per step (and at close), done counts workers that finished it; sleepers and waiting count
    who is asleep on each; closing sends workers home. interrupt: the word that StepArgs.interrupt points at.
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
        ("interrupt", ctypes.c_int32),
        ("pad3", ctypes.c_uint8 * 60),
    )
