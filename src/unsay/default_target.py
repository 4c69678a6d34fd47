"""Which target is taken here, and whether one can be: the compiler's registry asked with what the runtime finds out."""

from __future__ import annotations

from unsay.errors import TargetError


def default_target() -> str:
    """The target with the highest priority that lacks nothing on this machine; the CPU's own best if no other is ahead.

    Raises TargetError naming the CPU and what it lacks, if it can run none.
    """
    from unsay.compiler.codegen.backends import choose_backend
    from unsay.runtime.cpu import best_target, probe

    cpu = probe()
    best_target(cpu)
    return choose_backend(cpu.flags).backend.target


def check_runs_here(target: str) -> None:
    """Raise TargetError if the target is not known, or this machine lacks something it needs."""
    from unsay.compiler.codegen.backends import find_backend
    from unsay.isa.targets import is_cpu_target
    from unsay.runtime.cpu import check_target, probe

    backend = find_backend(target)
    if is_cpu_target(target):
        check_target(target)
    if lacking := backend.emitter.lacking(probe().flags):
        raise TargetError(f"{target} does not run here, it lacks {lacking}")
