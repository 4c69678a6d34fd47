"""Program files on disk: bytes, or the assembly they are made from."""

from __future__ import annotations

from pathlib import Path

from unsay.errors import ProgramError
from unsay.isa.program import Program
from unsay.vm.assembler import Assembly, assemble

_MAGIC = b"AVMP"


def read_program(path: Path) -> Assembly:
    """A program, from bytes or from text; raises ProgramError naming the file."""
    data = _read(path)
    if not data.startswith(_MAGIC):
        return read_source(path)
    try:
        return Assembly(Program.from_bytes(data))
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error


def read_source(path: Path) -> Assembly:
    """A program from assembly text; raises ProgramError that says `file:line:column:`."""
    try:
        text = _read(path).decode()
    except UnicodeDecodeError as error:
        raise ProgramError(f"{path}: neither a program file nor assembly text: {error}") from error
    try:
        return assemble(text)
    except ProgramError as error:
        raise ProgramError(f"{path}:{error}") from error


def write_program(path: Path, program: Program) -> None:
    """Write a program file."""
    try:
        path.write_bytes(program.to_bytes())
    except OSError as error:
        raise ProgramError(f"cannot write {path}: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProgramError(f"cannot read {path}: {error.strerror}") from error
