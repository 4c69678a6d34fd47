"""Whether who asks is a signal handler that came into this library."""

from __future__ import annotations

import os
import threading
from _thread import get_ident
from types import FrameType

_LAYERS = ("unsay.session.", "unsay.engine.", "unsay.kv.", "unsay.vm.", "unsay.runtime.", "unsay.model")
"""What may hold a lock, or the right to step. Commands and benchmarks, which call it, hold none."""

_main = [threading.main_thread().ident]
"""The thread that handlers are called in, never another. `threading.main_thread` would be one more call, cold."""


def came_into_us(frame: FrameType | None) -> bool:
    """Whether this frame, or one that it is called from, is the library's. None of them calls its user's code.

    So only a handler asks there, of a thread that may hold any lock: it must not wait for one. Looked for where it
    matters, it costs nothing where locks are taken.
    """
    if get_ident() not in _main:
        return False
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_LAYERS):
            return True
        frame = frame.f_back
    return False


def _in_child() -> None:
    """The thread that forked is the main one of the child."""
    _main[0] = get_ident()


os.register_at_fork(after_in_child=_in_child)
