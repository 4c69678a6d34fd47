"""Who makes code for which target: `register_backend(target, priority, emitter)`, best first.

An emitter says what it makes, what this machine lacks to run that, and makes it. The built-in ones register when the
registry is first read; anyone may add more, under names of their own:

    register_backend("acme-npu", 900, AcmeEmitter())

The modules that $UNSAY_BACKENDS names, between spaces, are imported then too, and their `register()` is called.

Without a target named, the highest priority whose emitter lacks nothing is chosen. The CPU's own instruction sets have
the priorities 100 to 199, one of which every machine that runs unsay has: they are what the choice falls back to. What
was passed over, and why, is part of the answer.

A warm start reads this module: named tuples take a seventh of the time that dataclasses take to be made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from unsay.errors import TargetError

if TYPE_CHECKING:
    from unsay.image import ModelSpec
    from unsay.isa.program import Program


class Step(NamedTuple):
    """What is to be emitted. scratch_offset: where in the arena the step's own memory begins (scratch.py). fast: the
    program for steps whose tokens are of the fast class, None without that class."""

    program: Program
    spec: ModelSpec
    max_tokens: int
    max_rows: int
    max_threads: int
    scratch_offset: int
    fast: Program | None = None


class Code(NamedTuple):
    """Position-independent code of a whole step, and the offsets of its entries in it."""

    blob: bytes
    entry: dict[str, int]


class Emitted(NamedTuple):
    """files: what was made, by file name. code: the step as the native executor calls it, None where it cannot."""

    files: Mapping[str, bytes]
    code: Code | None = None


class Emitter(Protocol):
    """Makes what one target runs; stateless."""

    @property
    def makes(self) -> str:
        """In a few words: "a whole step", "GEMV and attention as PTX"."""
        ...

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        """What this machine lacks to run what is made, "" if nothing. cpu_flags: of the CPU, as the kernel names them.

        Quick and without side effects; looks for devices and tools itself.
        """
        ...

    def emit(self, step: Step) -> Emitted:
        """Make it. Raises UnsupportedError naming the instruction that cannot be done, TargetError if a tool fails."""
        ...


class Backend(NamedTuple):
    """One row of the registry."""

    target: str
    priority: int
    emitter: Emitter


class Choice(NamedTuple):
    """The back end chosen. passed_over: (target, what it lacks) of those with a higher priority."""

    backend: Backend
    passed_over: tuple[tuple[str, str], ...]


_BUILT_IN = ("unsay.compiler.codegen.cpu", "unsay.compiler.codegen.gpu.emitters")

_rows: dict[str, Backend] = {}
_registered: set[str] = set()
"""Modules whose `register` was called."""


def register_backend(target: str, priority: int, emitter: Emitter) -> None:
    """Add a back end. Raises TargetError if the target has one already."""
    if target in _rows:
        raise TargetError(f"target {target!r} has a back end already; register under another name")
    _rows[target] = Backend(target, priority, emitter)


def backends() -> list[Backend]:
    """All of them, highest priority first; raises TargetError if $UNSAY_BACKENDS names what is none."""
    for module in (*_BUILT_IN, *os.environ.get("UNSAY_BACKENDS", "").split()):
        if module not in _registered:
            _register_module(module)
    return sorted(_rows.values(), key=lambda backend: (-backend.priority, backend.target))


def _register_module(name: str) -> None:
    try:
        register = import_module(name).register
    except (ImportError, AttributeError) as error:
        raise TargetError(f"$UNSAY_BACKENDS names {name!r}, which has no register() to call: {error}") from error
    _registered.add(name)
    register()


def find_backend(target: str) -> Backend:
    """The back end of a target; raises TargetError naming the known ones."""
    known = backends()
    for backend in known:
        if backend.target == target:
            return backend
    raise TargetError(f"unknown target {target!r}; known: {', '.join(backend.target for backend in known)}")


def choose_backend(cpu_flags: frozenset[str]) -> Choice:
    """The best back end whose code this machine runs; raises TargetError saying what each of them lacks."""
    passed_over: list[tuple[str, str]] = []
    for backend in backends():
        lacking = backend.emitter.lacking(cpu_flags)
        if not lacking:
            return Choice(backend, tuple(passed_over))
        passed_over.append((backend.target, lacking))
    raise TargetError("no target runs here: " + "; ".join(f"{target} lacks {what}" for target, what in passed_over))
