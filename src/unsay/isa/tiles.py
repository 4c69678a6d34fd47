"""Linux's permission to use AMX tiles: a process asks for it, its threads and forked children have it too.

Without it the first instruction on a tile is an illegal one, whatever the flags of the CPU say.
"""

from __future__ import annotations

import ctypes
import os

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18
"""System call of x86-64, its code, and the state component asked for (Linux, arch/x86/include/uapi/asm/prctl.h)."""


def request_tiles() -> str:
    """Ask the kernel; "" if this process may use tiles now, else why not. On x86-64 only; asking again changes nothing.

    A thread that handles signals on a stack too small for tiles is a reason to refuse.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0:
        return ""
    return f"permission of the kernel for AMX tiles ({os.strerror(ctypes.get_errno())})"
