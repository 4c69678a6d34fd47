"""The instruction sets machine code is made for, best first, and what each needs of a CPU.

`cpu_flags` are the names /proc/cpuinfo gives; Linux lists there only what the kernel has enabled for programs,
so a flag stands for CPU and operating system alike. No CPU has the flag of WebAssembly.
"""

from __future__ import annotations

from typing import NamedTuple

from unsay.errors import TargetError

_X86_64_V3 = (
    "pni", "ssse3", "sse4_1", "sse4_2", "popcnt", "cx16", "movbe", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm",
)  # fmt: skip
_AARCH64 = ("asimd", "atomics", "asimddp")
_X86_64_V4 = (*_X86_64_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


class Target(NamedTuple):
    """One instruction set. `llvm_cpu`, `llvm_features`: the same set in LLVM's words. `vector_bytes`: of a register."""

    name: str
    triple: str
    llvm_cpu: str
    llvm_features: str
    cpu_flags: tuple[str, ...]
    vector_bytes: int

    @property
    def has_tiles(self) -> bool:
        """Whether products of whole rows of int8, and attention over int8 pages, are made on AMX tiles."""
        return "+amx-int8" in self.llvm_features


TARGETS: tuple[Target, ...] = (
    Target(
        "amx-int8", "x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512vnni,+amx-tile,+amx-int8,-prefer-256-bit",
        (*_X86_64_V4, "avx512_vnni", "amx_tile", "amx_int8"), 64,
    ),
    Target(
        "avx512-vnni", "x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512vnni,-prefer-256-bit",
        (*_X86_64_V4, "avx512_vnni"), 64,
    ),
    Target(
        "avx-vnni", "x86_64-unknown-linux-gnu", "x86-64-v3", "+avxvnni",
        (*_X86_64_V3, "avx_vnni"), 32,
    ),
    Target("avx2", "x86_64-unknown-linux-gnu", "x86-64-v3", "", _X86_64_V3, 32),
    Target(
        "aarch64-i8mm", "aarch64-unknown-linux-gnu", "generic", "+lse,+dotprod,+i8mm", (*_AARCH64, "i8mm"), 16,
    ),
    Target("aarch64-dotprod", "aarch64-unknown-linux-gnu", "generic", "+lse,+dotprod", _AARCH64, 16),
    Target("wasm32-simd128", "wasm32-unknown-unknown", "generic", "+simd128,+atomics", ("simd128",), 16),
)  # fmt: skip


def is_cpu_target(name: str) -> bool:
    """Whether this table has it."""
    return any(target.name == name for target in TARGETS)


def find_target(name: str) -> Target:
    """The target of this name; raises TargetError listing the known ones."""
    for target in TARGETS:
        if target.name == name:
            return target
    raise TargetError(f"unknown target {name!r}; known: {', '.join(target.name for target in TARGETS)}")
