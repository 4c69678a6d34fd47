"""How many cores this process may keep busy."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP_MAX = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Cores of the affinity mask, or fewer where a container's quota (cgroup v2) says so; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota_of(_CGROUP_MAX.read_text()) if _CGROUP_MAX.exists() else None
    return cores if quota is None else max(1, min(cores, quota))


def _quota_of(text: str) -> int | None:
    """Whole cores of a cpu.max line "QUOTA PERIOD" in microseconds; None for "max"."""
    quota, _, period = text.strip().partition(" ")
    return None if quota == "max" else int(quota) // int(period or "100000")
