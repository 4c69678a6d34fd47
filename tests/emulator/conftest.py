"""A target with tiles that a whole model can be loaded for, on any x86-64 CPU."""

from __future__ import annotations

import pytest

from tests.emulator.amx import AMX_ON_AVX2, UNIT
from unsay.compiler.codegen import backends
from unsay.compiler.codegen.backends import register_backend
from unsay.compiler.codegen.cpu import CpuEmitter
from unsay.compiler.codegen.kernels import dot
from unsay.isa import targets
from unsay.isa.targets import Target


@pytest.fixture
def with_tiles(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target with tiles that this machine runs as far as vectors go."""
    monkeypatch.setattr(targets, "TARGETS", (*targets.TARGETS, AMX_ON_AVX2))
    monkeypatch.setitem(dot._UNITS, AMX_ON_AVX2.name, UNIT)
    backends.backends()
    monkeypatch.setattr(backends, "_rows", dict(backends._rows))
    register_backend(AMX_ON_AVX2.name, 1, _Emitter(AMX_ON_AVX2))
    return AMX_ON_AVX2


class _Emitter(CpuEmitter):
    """The same code, which tests run where nothing but tiles is lacking."""

    def lacking(self, cpu_flags: frozenset[str]) -> str:
        return ""
