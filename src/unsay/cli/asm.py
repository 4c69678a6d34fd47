"""Assemble an AVM program, or print the one of a model.

`unsay asm FILE -o OUT` writes a program file; `unsay asm --model M` prints the program a model was compiled to.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from unsay.cli.output import progress_bars, write, write_error
from unsay.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="assembly text (docs/avm.md)")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="where to write (default: FILE with .avm)")
    parser.add_argument("--model", metavar="M", help="print the program of this model instead")
    parser.add_argument("--target", metavar="T", help="instruction set to compile it for (default: of this CPU)")


def run(args: argparse.Namespace) -> int:
    """Write the program file, or print the model's program."""
    if (args.file is None) == (args.model is None):
        raise RequestError("give one of the two: a FILE to assemble, or --model M to print its program")
    if args.model is not None:
        _print_model(args.model, args.target)
    else:
        _assemble(args.file, args.output or args.file.with_suffix(".avm"))
    return 0


def _assemble(source: Path, output: Path) -> None:
    from unsay.vm.program_file import read_source, write_program

    assembly = read_source(source)
    write_program(output, assembly.program)
    write_error(f"{output}: {len(assembly.program)} instructions, {len(assembly.program.data)} bytes of data")


def _print_model(name: str, target: str | None) -> None:
    from unsay import hub
    from unsay.compiler.compile import compile_model
    from unsay.default_target import default_target
    from unsay.vm.assembler import disassemble
    from unsay.vm.program_file import read_program

    with progress_bars() as progress:
        files = compile_model(hub.resolve(name, progress), target=target or default_target(), progress=progress)
    write(disassemble(read_program(files.program).program, name))
