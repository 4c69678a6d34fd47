"""Runs a native step of the WebAssembly target in Node: two instances over one shared memory are its threads."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.memory import Memory
from unsay.compiler.codegen.backends import Code
from unsay.isa.abi import PoolState

_BASE = 0x10000
_STACK_BYTES = 1 << 20


def find_node() -> Path:
    """The program; the test fails, saying what to install, where there is none."""
    found = shutil.which("node")
    if found is None:
        pytest.fail("needs Node; Debian: apt-get install nodejs")
    return Path(found)


def run_step(
    node: Path, code: Code, arrays: dict[str, np.ndarray], counts: dict[str, int], work: Path
) -> tuple[int, dict[str, np.ndarray]]:
    """Run the step on two threads; its result, and the arrays as it left them."""
    memory = Memory(_BASE, bytearray(4))
    arguments = memory.place_step(arrays, {**counts, "num_threads": 2})
    pool = memory.place(bytes(ctypes.sizeof(PoolState)))
    stacks = [memory.place(bytes(_STACK_BYTES)) + _STACK_BYTES for _ in range(2)]
    (work / "step.wasm").write_bytes(code.blob)
    (work / "memory").write_bytes(memory.image)
    paths = [Path(__file__).parent / "step.js", work / "step.wasm", work / "memory", work / "after"]
    command = [str(word) for word in (node, *paths, _BASE, pool, arguments, *stacks)]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False)
    if done.returncode:
        pytest.fail(f"the step did not return: {done.stderr[-2000:].decode()}")
    after = (work / "after").read_bytes()
    return struct.unpack_from("<i", after)[0], memory.arrays_in(after, arrays)
