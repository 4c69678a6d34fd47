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


def test_an_aarch64_cpu_is_told_what_its_own_architecture_needs() -> None:
    with pytest.raises(TargetError, match=r"lacks asimddp; unsay needs at least ARMv8\.2"):
        best_target(cpu_for("aarch64-dotprod", "asimddp"))
    with pytest.raises(TargetError, match="lacks i8mm"):
        check_target("aarch64-i8mm", cpu_for("aarch64-dotprod"))


def test_no_cpu_runs_webassembly() -> None:
    for target in ("avx512-vnni", "aarch64-i8mm"):
        with pytest.raises(TargetError, match="wasm32-simd128 code, it lacks simd128"):
            check_target("wasm32-simd128", cpu_for(target))


def test_cpuinfo_is_read_for_the_first_processor() -> None:
    text = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nflags\t: fpu\n"
    assert parse_cpuinfo(text) == Cpu("Some CPU", frozenset({"fpu", "avx2"}))


def test_cpuinfo_of_aarch64_has_features_and_no_name() -> None:
    text = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd atomics asimddp\nCPU implementer\t: 0x41\n"
    cpu = parse_cpuinfo(text)
    assert cpu == Cpu("unknown CPU", frozenset({"fp", "asimd", "atomics", "asimddp"}))
    assert best_target(cpu) == "aarch64-dotprod"
