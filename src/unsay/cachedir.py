"""Where unsay keeps what it can make or fetch again."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING

from unsay.errors import CacheError

if TYPE_CHECKING:
    from unsay.core import Progress


def cache_root() -> Path:
    """The cache directory, made if missing: $UNSAY_CACHE, else $XDG_CACHE_HOME/unsay, else ~/.cache/unsay.

    Raises CacheError if it cannot be made or written.
    """
    root = _configured_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CacheError(f"cannot make the cache directory {root}: {error.strerror}; {_HINT}") from error
    if not os.access(root, os.W_OK | os.X_OK):
        raise CacheError(f"no permission to write the cache directory {root}; {_HINT}")
    return root


def wait_for_lock(file: IO[bytes] | IO[str], progress: Progress | None) -> None:
    """Lock an open file (flock), saying so while another process has it: it makes what is wanted, and may take long."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if progress is not None:
            progress("waiting for another unsay", 0, 0)
        fcntl.flock(file, fcntl.LOCK_EX)


def _configured_root() -> Path:
    if chosen := os.environ.get("UNSAY_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "unsay"


_HINT = "set UNSAY_CACHE to a directory you can write"
