"""How many threads are worth starting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unsay import cores


@pytest.mark.parametrize(
    ("line", "expected"),
    [("max 100000", 1000), ("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("400000", 4)],
)
def test_a_quota_is_whole_cores_and_at_least_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, expected: int
) -> None:
    quota = tmp_path / "cpu.max"
    quota.write_text(line + "\n")
    monkeypatch.setattr(cores, "_CGROUP_MAX", quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(1000)))
    assert cores.usable_cores() == expected


def test_without_a_quota_the_affinity_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_CGROUP_MAX", tmp_path / "none")
    assert cores.usable_cores() == len(os.sched_getaffinity(0))
