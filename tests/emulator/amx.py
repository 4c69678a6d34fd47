"""AMX tiles in this process, whatever x86-64 CPU it runs on: where they are lacking, amx.c does what they do."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.compiler.codegen.steps import StepBuilder, random_pages, run_native, run_reference
from tests.exactness.runs import fresh_branch, run_alone
from unsay import Model
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.core import Batch
from unsay.isa.classes import ids_of, is_fast
from unsay.isa.targets import find_target
from unsay.isa.tiles import request_tiles
from unsay.runtime.cpu import probe

AMX_ON_AVX2 = find_target("avx2")._replace(name="amx-on-avx2", llvm_features="+amx-tile,+amx-int8")
"""Tiles beside vectors that the CPUs of developers have."""

UNIT = replace(dot_unit(find_target("avx2")), amx=True)
"""How that target multiplies."""


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


def assert_defined(step: StepBuilder, batch: Batch, threads: tuple[int, ...]) -> Counts:
    """Tiles leave the bytes of the definition, in every tensor and page. What the last number of threads did."""
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    counts: list[Counts] = []
    for num_threads in threads:
        with tiles() as done:
            made = run_native(step, batch, pages, UNIT, num_threads, target=AMX_ON_AVX2)
        assert made == expected, (batch.positions, num_threads)
        counts.append(done.counts())
    return counts[-1]


def assert_stops_leave_nothing(model: Model, keys: Sequence[int]) -> None:
    """Stopped at several times, no thread holds tiles, and what is computed after is what it was."""
    with tiles() as done:
        expected = run_alone(model, keys)
        executor, results, branch = model.engine.machine.executor, list[object](), fresh_branch(model)
        branch.reserve(len(keys))
        tokens = np.arange(len(keys), dtype=np.int32)
        table, of, rows = np.array([branch.page_table()], np.int32), np.zeros_like(tokens), tokens[-1:]
        batch = Batch(np.array(ids_of(keys), np.int32), tokens, of, table, rows, is_fast=is_fast(keys[0]))
        for delay_s in (1e-3, 4e-3, 2e-2):
            thread = threading.Thread(target=lambda: results.append(executor.run(batch)))
            thread.start()
            time.sleep(delay_s)
            executor.interrupt_word[0] = 1
            thread.join(60)
            executor.interrupt_word[0] = 0
            assert done.counts().configured == 0
        assert any(result is None for result in results)
        branch.release()
        run_alone(model, keys).assert_equals(expected, "after stops")
