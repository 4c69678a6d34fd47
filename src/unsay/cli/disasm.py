"""Print an AVM program file as assembly, which `unsay asm` turns into the same bytes."""

from __future__ import annotations

import argparse
from pathlib import Path

from unsay.cli.output import write


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", type=Path, metavar="FILE", help="program file, as `unsay asm` writes it")


def run(args: argparse.Namespace) -> int:
    """Print it."""
    from unsay.vm.assembler import disassemble
    from unsay.vm.program_file import read_program

    write(disassemble(read_program(args.file).program))
    return 0
