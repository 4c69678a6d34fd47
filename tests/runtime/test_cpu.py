"""CPUs are told apart by their flags; one that cannot run unsay is refused by name."""

from __future__ import annotations

import pytest

from unsay.errors import TargetError
from unsay.isa.targets import TARGETS, find_target
from unsay.runtime.cpu import Cpu, best_target, check_target, parse_cpuinfo


def cpu_for(target: str, *without: str) -> Cpu:
    return Cpu("Test CPU 9000", frozenset(find_target(target).cpu_flags) - set(without))


@pytest.mark.parametrize("target", [target.name for target in TARGETS])
def test_the_best_target_a_cpu_runs_is_chosen(target: str) -> None:
    assert best_target(cpu_for(target)) == target


def test_avx512_without_vnni_falls_back_to_avx2() -> None:
    assert best_target(cpu_for("avx512-vnni", "avx512_vnni")) == "avx2"


def test_a_cpu_without_avx2_is_refused_with_its_name_and_what_it_lacks() -> None:
    with pytest.raises(TargetError, match=r"Test CPU 9000 .* lacks avx2 f16c;"):
        best_target(cpu_for("avx2", "avx2", "f16c"))


def test_a_forced_target_is_checked_against_the_cpu() -> None:
    check_target("avx2", cpu_for("avx512-vnni"))
    with pytest.raises(TargetError, match="avx512_vnni"):
        check_target("avx512-vnni", cpu_for("avx2"))
    with pytest.raises(TargetError, match="unknown target"):
        check_target("mmx", cpu_for("avx2"))


def test_cpuinfo_is_read_for_the_first_processor() -> None:
    text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t: fpu\n"
    assert parse_cpuinfo(text) == Cpu("Some CPU", frozenset({"fpu", "avx2"}))
