"""Runs a native step on an emulated CPU that has AVX-512 VNNI, whatever CPU the tests run on.

Bochs executes x86 one instruction at a time in software. The step needs no operating system (one thread never
parks), so a 64 KiB ROM (boot.s) and one RAM image are the whole machine; there is no disk and no BIOS.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pexpect
import pytest

from tests.emulator.memory import Memory
from unsay.compiler.codegen.translate import compile_module
from unsay.isa.targets import find_target

_RAM_BASE = 0x100000
_HEADER_BYTES = 64
_LIBRARIES = Path("/usr/lib")

ON_BOCHS = {
    "avx512-vnni": find_target("avx512-vnni"),
    # The emulated CPU has vpdpbusd on 32-byte registers in its AVX-512 (EVEX) form only: same operation, same text.
    "avx-vnni": find_target("avx-vnni")._replace(
        llvm_cpu="x86-64-v4", llvm_features="+avx512vnni,+prefer-256-bit,-avxvnni"
    ),
    "avx2": find_target("avx2"),
}
"""Targets the emulated CPU runs."""


def find_bochs() -> Path:
    """The emulator; the test fails, saying what to install, where there is none."""
    binary, display = shutil.which("bochs-bin"), next(iter(_LIBRARIES.glob("*/bochs/plugins/libbx_term_gui.so")), None)
    if binary is None or display is None:
        pytest.fail("needs the Bochs emulator and its terminal display; Debian: apt-get install bochs bochs-term")
    return Path(binary)


def make_rom() -> bytes:
    """boot.s, assembled by LLVM."""
    lines = [line.split("#")[0].rstrip() for line in (Path(__file__).parent / "boot.s").read_text().splitlines()]
    quoted = [json.dumps(line) for line in lines if line]
    target = find_target("avx2")
    text = f'target triple = "{target.triple}"\n' + "\n".join(f"module asm {line}" for line in quoted)
    blob, _ = compile_module(text, target)
    return blob


def run_step(
    bochs: Path, rom: bytes, blob: bytes, entry: int, arrays: dict[str, np.ndarray], counts: dict[str, int], work: Path
) -> tuple[int, dict[str, np.ndarray]]:
    """Call step(StepArgs*, 0) on the emulated CPU.

    arrays: one per pointer field of StepArgs; counts: the integer fields. Returns the step's result and the arrays
    as the step left them.
    """
    memory = _ram_image(blob, entry, arrays, counts)
    (work / "rom.bin").write_bytes(rom)
    (work / "ram.bin").write_bytes(memory.image)
    (work / "bochsrc").write_text(_configuration(len(memory.image)))
    (work / "script").write_text(f'c\nwritemem "out.bin" 0x{_RAM_BASE:x} {len(memory.image)}\nq\n')
    _emulate(bochs, work)
    after = (work / "out.bin").read_bytes()
    (result,) = struct.unpack_from("<Q", after, 16)
    return result, memory.arrays_in(after, arrays)


def _ram_image(blob: bytes, entry: int, arrays: dict[str, np.ndarray], counts: dict[str, int]) -> Memory:
    memory = Memory(_RAM_BASE, bytearray(_HEADER_BYTES))
    code = memory.place(blob)
    arguments = memory.place_step(arrays, counts)
    memory.place(b"")
    struct.pack_into("<QQQQ", memory.image, 0, code + entry, arguments, 0, memory.end)
    return memory


def _configuration(ram_bytes: int) -> str:
    megabytes = 64
    while megabytes << 20 < _RAM_BASE + ram_bytes + (16 << 20):
        megabytes *= 2
    return f"""config_interface: textconfig
display_library: term
cpu: model=corei7_icelake_u, count=1, ips=400000000, reset_on_triple_fault=0
memory: guest={megabytes}, host={megabytes}
romimage: file=rom.bin, address=0xffff0000
optramimage1: file=ram.bin, address=0x{_RAM_BASE:x}
magic_break: enabled=1
log: bochs.log
panic: action=fatal
"""


def _emulate(bochs: Path, work: Path) -> None:
    (work / "out.bin").unlink(missing_ok=True)
    environment = {**os.environ, "TERM": "dumb"}
    process = pexpect.spawn(
        str(bochs), ["-q", "-f", "bochsrc", "-rc", "script"], cwd=str(work), env=environment, timeout=240
    )
    process.expect(pexpect.EOF)
    output = process.before or b""
    process.close()
    if b"Magic breakpoint" not in output or not (work / "out.bin").exists():
        tail = output[-1500:].decode(errors="replace")
        pytest.fail(f"the emulated step did not return:\n{tail}\n{(work / 'bochs.log').read_text()[-2000:]}")
