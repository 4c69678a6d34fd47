"""The back ends of GPUs and other accelerators: a step's kernels in the form a target loads, and `launches.json`, which
says how to run them (plan.py).

No executor launches them yet, so none is chosen unless named; docs/targets.md says what of each is run in tests.
Everything heavy is imported where it is used: this module is, whenever a back end is looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from unsay.compiler.codegen.backends import Emitted, Step, register_backend

if TYPE_CHECKING:
    from unsay.compiler.codegen.gpu.lanes import Kernel
    from unsay.compiler.codegen.gpu.llvm_text import Flavour
    from unsay.compiler.codegen.translate import Form

Files: TypeAlias = dict[str, bytes]

AMD_CHIPS = ("gfx942", "gfx1100")
"""MI300 and RX 7900: the two ways AMD has of a dot product of four int8."""


class GpuEmitter(NamedTuple):
    """Kernels as files by name, which `write` gives."""

    makes: str
    write: Callable[[Sequence[Kernel]], Files]

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        """The same on every machine."""
        return "an executor, which this version has for CPUs only"

    def emit(self, step: Step) -> Emitted:
        """The kernels' files, and launches.json."""
        from unsay.compiler.codegen.gpu.plan import plan_step

        plan = plan_step(step.program, step.spec)
        return Emitted({**self.write(list(plan.kernels.values())), "launches.json": plan.to_json().encode()})


def wgsl_files(kernels: Sequence[Kernel]) -> Files:
    """A module for each."""
    from unsay.compiler.codegen.gpu.c_text import wgsl

    return {f"{kernel.name}.wgsl": wgsl(kernel).encode() for kernel in kernels}


def metal_files(kernels: Sequence[Kernel]) -> Files:
    """One source."""
    from unsay.compiler.codegen.gpu.c_text import msl

    return {"kernels.metal": msl(kernels).encode()}


def bang_files(kernels: Sequence[Kernel]) -> Files:
    """One source."""
    from unsay.compiler.codegen.gpu.bang_text import bang

    return {"kernels.mlu": bang(kernels).encode()}


def ptx_files(kernels: Sequence[Kernel]) -> Files:
    """PTX, which the driver, or ptxas, makes code of for any GPU of compute capability 8.0 and up."""
    from unsay.compiler.codegen.gpu.llvm_text import NVPTX

    return {"kernels.ptx": _translate(kernels, NVPTX, "asm")}


def amdgcn_files(kernels: Sequence[Kernel], chip: str) -> Files:
    """A relocatable object for one chip, which ld.lld makes a code object of."""
    from unsay.compiler.codegen.gpu.llvm_text import amdgcn

    return {"kernels.o": _translate(kernels, amdgcn(chip), "object")}


def _translate(kernels: Sequence[Kernel], flavour: Flavour, form: Form) -> bytes:
    from unsay.compiler.codegen.gpu.llvm_text import llvm_module
    from unsay.compiler.codegen.translate import translate

    return translate(llvm_module(kernels, flavour), flavour.target, form)


class AscendEmitter(NamedTuple):
    """C++ that calls the makers' library."""

    makes: str = "C++ of a whole step through ACL, never executed"

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        """The same on every machine."""
        return "an executor, which this version has for CPUs only"

    def emit(self, step: Step) -> Emitted:
        """step.cpp."""
        from unsay.compiler.codegen.gpu.acl_text import acl_source

        return Emitted({"step.cpp": acl_source(step).encode()})


def register() -> None:
    """Put these targets in the registry, below every CPU."""
    register_backend("vulkan", 60, GpuEmitter("WGSL kernels of a whole step", wgsl_files))
    register_backend("ptx", 59, GpuEmitter("PTX kernels of a whole step", ptx_files))
    for place, chip in enumerate(AMD_CHIPS):
        emitter = GpuEmitter("an object with the kernels of a whole step", partial(amdgcn_files, chip=chip))
        register_backend(f"amdgcn-{chip}", 58 - place, emitter)
    register_backend("metal", 50, GpuEmitter("Metal kernels of a whole step, never executed", metal_files))
    register_backend("ascend", 40, AscendEmitter())
    register_backend("cambricon", 30, GpuEmitter("BANG C kernels of a whole step, never executed", bang_files))
