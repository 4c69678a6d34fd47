"""The back ends of CPUs: every target of `isa/targets.py`, from one kernel source."""

from __future__ import annotations

from typing import NamedTuple

from unsay.compiler.codegen.backends import Emitted, Step, register_backend
from unsay.isa.targets import TARGETS, Target

_HIGHEST_PRIORITY = 199


class CpuEmitter(NamedTuple):
    """Emits the whole step, for all threads."""

    target: Target

    @property
    def makes(self) -> str:
        """For people."""
        return "a whole step"

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        """CPU flags; of a CPU that has tiles, what a process needs to use them."""
        flags = " ".join(flag for flag in self.target.cpu_flags if flag not in cpu_flags)
        if flags or not self.target.has_tiles:
            return flags
        from unsay.compiler.codegen.amx_probe import lacking_for_tiles

        return lacking_for_tiles(cpu_flags)

    def emit(self, step: Step) -> Emitted:
        """Machine code."""
        from unsay.compiler.codegen.emit import emit

        code = emit(step, self.target.name)
        return Emitted({"code.bin": code.blob}, code)


def register() -> None:
    """Put every CPU target in the registry, in the order of their table."""
    for place, target in enumerate(TARGETS):
        register_backend(target.name, _HIGHEST_PRIORITY - place, CpuEmitter(target))
