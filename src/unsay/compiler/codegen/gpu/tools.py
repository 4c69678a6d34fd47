"""What other makers' tools make of GPU code, where they are installed: ptxas (NVIDIA) and ld.lld (LLVM)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from unsay.errors import TargetError

PTXAS = ("ptxas",)
LLD = (*(f"ld.lld-{version}" for version in range(22, 15, -1)), "ld.lld")


def find_tool(names: Sequence[str]) -> str | None:
    """The path of the first of these that is installed; the last is what it is called."""
    return next((path for name in names if (path := shutil.which(name))), None)


def assemble_ptx(ptx: bytes) -> bytes:
    """A cubin of PTX, by ptxas. Raises TargetError with its words, or if it is not installed."""
    return _run(PTXAS, ["-arch=sm_80", "IN", "-o", "OUT"], ptx)


def link_amdgcn(code: bytes) -> bytes:
    """A code object of a relocatable one, by ld.lld. Raises TargetError with its words, or if it is not installed."""
    return _run(LLD, ["-shared", "IN", "-o", "OUT"], code)


def _run(names: Sequence[str], arguments: Sequence[str], given: bytes) -> bytes:
    tool = find_tool(names)
    if tool is None:
        raise TargetError(f"{names[-1]} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        paths = {"IN": str(Path(directory, "in")), "OUT": str(Path(directory, "out"))}
        Path(paths["IN"]).write_bytes(given)
        command = [tool, *(paths.get(word, word) for word in arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise TargetError(f"{names[-1]}: {done.stderr.strip() or done.stdout.strip()}")
        return Path(paths["OUT"]).read_bytes()
