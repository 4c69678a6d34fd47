"""Runs a native step of an AArch64 target under QEMU's user mode, which executes the instructions in software.

The program is a static ELF file that is one segment: header, start code (start.ll), the step and its memory, at fixed
addresses and writable. Two threads run the step, so barriers and futexes are executed as well.
"""

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
from unsay.compiler.codegen.translate import compile_module
from unsay.isa.abi import PoolState
from unsay.isa.targets import find_target

_BASE = 0x400000
_NUMBERS_AT, _NUMBERS = 0x1000, struct.Struct("<9Q")
_STACK_BYTES = 1 << 20


def find_qemu() -> Path:
    """The emulator; the test fails, saying what to install, where there is none."""
    found = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if found is None:
        pytest.fail("needs QEMU's user mode for AArch64; Debian: apt-get install qemu-user-static")
    return Path(found)


def start_code() -> tuple[bytes, int]:
    """start.ll as machine code, and where in it the program begins."""
    text = (Path(__file__).parent / "start.ll").read_text()
    blob, symbols = compile_module(text, find_target("aarch64-dotprod"))
    return blob, symbols["_start"]


def run_step(
    qemu: Path,
    start: tuple[bytes, int],
    code: Code,
    arrays: dict[str, np.ndarray],
    counts: dict[str, int],
    work: Path,
) -> tuple[int, dict[str, np.ndarray]]:
    """Run the step on two threads; its result, and the arrays as it left them."""
    memory = Memory(_BASE, bytearray(_NUMBERS_AT + _NUMBERS.size))
    entry = memory.place(start[0]) + start[1]
    code_at = memory.place(code.blob)
    functions = [code_at + code.entry[name] for name in ("run", "worker", "close")]
    arguments = memory.place_step(arrays, {**counts, "num_threads": 2})
    pool = memory.place(bytes(ctypes.sizeof(PoolState)))
    stack = memory.place(bytes(_STACK_BYTES)) + _STACK_BYTES
    _NUMBERS.pack_into(
        memory.image, _NUMBERS_AT, *functions, pool, arguments, stack, _BASE, len(memory.image), 0xFFFF_FFFF
    )
    memory.image[:120] = _elf_header(entry, len(memory.image))
    program = work / "step"
    program.write_bytes(memory.image)
    program.chmod(0o755)
    done = subprocess.run([qemu, "-cpu", "max", program], capture_output=True, timeout=240, check=False)
    if len(done.stdout) != len(memory.image):
        pytest.fail(f"the emulated step did not return: {done.returncode} {done.stderr[-1000:]!r}")
    result = _NUMBERS.unpack_from(done.stdout, _NUMBERS_AT)[8]
    return result, memory.arrays_in(done.stdout, arrays)


def _elf_header(entry: int, num_bytes: int) -> bytes:
    """An executable of one segment, all of the file, readable, writable and executable."""
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 183, 1, entry, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    return header + struct.pack("<IIQQQQQQ", 1, 7, 0, _BASE, _BASE, num_bytes, num_bytes, 0x1000)
