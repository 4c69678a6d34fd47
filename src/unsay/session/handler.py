"""Whether who asks is a signal handler that came into this library."""

from __future__ import annotations

from types import FrameType

_LAYERS = ("unsay.session.", "unsay.engine.", "unsay.kv.", "unsay.vm.", "unsay.runtime.", "unsay.model")
"""What may hold a lock, or the right to step. Commands and benchmarks, which call it, hold none."""


def came_into_us(frame: FrameType | None) -> bool:
    """Whether this frame, or one that it is called from, is the library's. None of them calls its user's code.

    So only a handler asks there, of a thread that may hold any lock: it must not wait for one. Looked for where it
    matters, it costs nothing where locks are taken.
    """
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_LAYERS):
            return True
        frame = frame.f_back
    return False
