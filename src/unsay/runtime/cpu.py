"""What this CPU can run."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from unsay.errors import TargetError
from unsay.isa.targets import TARGETS, find_target

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class Cpu:
    """Name and feature flags, as Linux reports them for the first processor."""

    name: str
    flags: frozenset[str]


def probe() -> Cpu:
    """The CPU this process runs on; raises TargetError where there is no x86-64 Linux to ask."""
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64") or not _CPUINFO.exists():
        raise TargetError(f"unsay needs an x86-64 CPU under Linux; this is {machine} under {platform.system()}")
    return parse_cpuinfo(_CPUINFO.read_text())


def parse_cpuinfo(text: str) -> Cpu:
    """Read the first processor of /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return Cpu(fields.get("model name", "unknown CPU"), frozenset(fields.get("flags", "").split()))


def best_target(cpu: Cpu | None = None) -> str:
    """Name of the best target the CPU runs; raises TargetError naming the CPU and what it lacks."""
    cpu = cpu or probe()
    for target in TARGETS:
        if cpu.flags.issuperset(target.cpu_flags):
            return target.name
    check_target(TARGETS[-1].name, cpu)
    raise AssertionError(cpu)


def check_target(name: str, cpu: Cpu | None = None) -> None:
    """Raise TargetError if the CPU cannot run code of this target, naming what it lacks."""
    target = find_target(name)
    cpu = cpu or probe()
    missing = [flag for flag in target.cpu_flags if flag not in cpu.flags]
    if missing:
        raise TargetError(
            f"{cpu.name} cannot run {name} code, it lacks {' '.join(missing)}; "
            f"unsay needs at least x86-64-v3 (AVX2, FMA, F16C: Haswell or Zen and later)"
        )
