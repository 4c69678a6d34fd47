"""Emitted sources as C++, with stand-ins for the headers their makers ship."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.compiler.codegen.gpu.launching import Bytes
from unsay.compiler.codegen.gpu.lanes import Kernel

STUBS = Path(__file__).parents[1] / "stubs"
_GCC = ["g++", "-x", "c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-mfma", f"-I{STUBS}"]
_ALLOWED = ["-Wno-unused-variable", "-Wno-unused-parameter", "-Wno-attributes", "-Wno-unknown-pragmas"]
"""What the makers' own compilers take: Metal's attributes, and names that one kernel of many does not use."""


def compile_errors(source: bytes, *options: str) -> str:
    """What g++ says of a source; nothing if it is C++."""
    command = [*_GCC, *_ALLOWED, *options, "-fsyntax-only", "-"]
    return subprocess.run(command, input=source, capture_output=True, check=False).stderr.decode()


class BangDevice:
    """BANG C kernels as C++ on this CPU, which is one core of the accelerator."""

    def __init__(self, source: bytes, directory: Path) -> None:
        library = directory / "kernels.so"
        command = [*_GCC, *_ALLOWED, "-O1", "-shared", "-fPIC", "-o", str(library), "-"]
        subprocess.run(command, input=source, check=True)
        self._library = ctypes.CDLL(str(library))

    def run(self, kernel: Kernel, grid: tuple[int, int], buffers: Sequence[Bytes]) -> None:
        """One call."""
        pointers = [ctypes.c_void_p(buffer.ctypes.data) for buffer in buffers]
        getattr(self._library, kernel.name)(*pointers, *map(ctypes.c_int, grid))
