"""What this CPU can run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from unsay.errors import TargetError
from unsay.isa.targets import TARGETS, find_target
from unsay.isa.tiles import request_tiles

_CPUINFO = Path("/proc/cpuinfo")

_OLDEST = {
    "avx2": "at least x86-64-v3 (AVX2, FMA, F16C: Haswell or Zen and later)",
    "aarch64-dotprod": "at least ARMv8.2 with dot products (Cortex-A75 or Neoverse N1 and later)",
}
"""The least demanding target of each architecture, and what it means."""


class Cpu(NamedTuple):
    """Name and feature flags, as Linux reports them for the first processor."""

    name: str
    flags: frozenset[str]


def probe() -> Cpu:
    """The CPU this process runs on; raises TargetError where there is no Linux on x86-64 or AArch64 to ask."""
    system, _, _, _, machine = os.uname()
    if machine not in ("x86_64", "aarch64") or not _CPUINFO.exists():
        raise TargetError(f"unsay needs an x86-64 or AArch64 CPU under Linux; this is {machine}, {system}")
    return parse_cpuinfo(_CPUINFO.read_text())


def parse_cpuinfo(text: str) -> Cpu:
    """Read the first processor of /proc/cpuinfo; on AArch64 flags are called features, and the CPU has no name."""
    fields: dict[str, str] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    flags = fields.get("flags", fields.get("Features", ""))
    return Cpu(fields.get("model name", "unknown CPU"), frozenset(flags.split()))


def best_target(cpu: Cpu | None = None) -> str:
    """Name of the best target the CPU runs; raises TargetError naming the CPU and what it lacks."""
    cpu = cpu or probe()
    for target in TARGETS:
        if cpu.flags.issuperset(target.cpu_flags):
            return target.name
    check_target(_nearest(cpu), cpu)
    raise AssertionError(cpu)


def check_target(name: str, cpu: Cpu | None = None) -> None:
    """Raise TargetError if the CPU cannot run code of this target, naming what it lacks."""
    cpu = cpu or probe()
    missing = _missing(name, cpu)
    if missing:
        need = _OLDEST[_nearest(cpu)]
        raise TargetError(f"{cpu.name} cannot run {name} code, it lacks {' '.join(missing)}; unsay needs {need}")


def prepare(name: str) -> None:
    """Have this process run code of this target. Raises TargetError if it cannot."""
    check_target(name)
    if "amx_tile" in find_target(name).cpu_flags and (lacking := request_tiles()):
        raise TargetError(f"{name} code does not run here, it lacks {lacking}; take target avx512-vnni")


def _missing(name: str, cpu: Cpu) -> list[str]:
    return [flag for flag in find_target(name).cpu_flags if flag not in cpu.flags]


def _nearest(cpu: Cpu) -> str:
    """The oldest target of the CPU's architecture: the one it lacks least of."""
    return min(_OLDEST, key=lambda name: len(_missing(name, cpu)))
