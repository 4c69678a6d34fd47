"""AMX tiles in this process, whatever x86-64 CPU it runs on: where they are lacking, amx.c does what they do."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from unsay.isa.targets import find_target
from unsay.isa.tiles import request_tiles
from unsay.runtime.cpu import probe

AMX_ON_AVX2 = find_target("avx2")._replace(name="amx-on-avx2", llvm_features="+amx-tile,+amx-int8")
"""Tiles beside vectors that the CPUs of developers have."""


class Counts(NamedTuple):
    """Configurations loaded, releases, products, and threads that hold a configuration now."""

    configurations: int
    releases: int
    products: int
    configured: int


class Tiles:
    """counts: what was done since `tiles` was entered; zeros where the CPU does it itself."""

    def __init__(self, library: ctypes.CDLL | None) -> None:
        self._library = library

    @property
    def is_emulated(self) -> bool:
        """Whether instructions are counted, and refused ones noted."""
        return self._library is not None

    def counts(self) -> Counts:
        """So far."""
        numbers = (ctypes.c_int32 * len(Counts._fields))()
        if self._library is not None:
            self._library.counts(numbers)
        return Counts(*numbers)

    def fault(self) -> str:
        """The first instruction that a CPU would have refused, "" if none."""
        if self._library is None:
            return ""
        return ctypes.string_at(self._library.first_fault()).decode()


@contextmanager
def tiles() -> Iterator[Tiles]:
    """Tiles work inside. At its end nothing was refused, and no thread holds a configuration."""
    if "amx_int8" in probe().flags and not request_tiles():
        yield Tiles(None)
        return
    emulator = library()
    emulator.install()
    try:
        yield (inside := Tiles(emulator))
    finally:
        emulator.uninstall()
    assert not inside.fault(), inside.fault()
    assert inside.counts().configured == 0


@cache
def library() -> ctypes.CDLL:
    """amx.c, compiled: install, uninstall, first_fault and counts."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.fail("needs a C compiler; Debian: apt-get install gcc")
    with tempfile.TemporaryDirectory() as directory:
        made = os.path.join(directory, "amx.so")
        source = Path(__file__).with_name("amx.c")
        subprocess.run([compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, source], check=True)
        loaded = ctypes.CDLL(made)
    loaded.first_fault.restype = ctypes.c_void_p
    return loaded
