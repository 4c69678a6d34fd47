"""What verbs that run passes share: --print-after, --extension, and reading LLMIR text from a file."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.cli.output import write, write_error
from unsay.errors import IrError, RequestError

if TYPE_CHECKING:
    from unsay.compiler.ir.core import Graph
    from unsay.compiler.passes.pipeline import After, Pass

_STDIN = Path("-")
_MLIR = ".mlir"


def add_print_after_option(parser: argparse.ArgumentParser) -> None:
    """--print-after."""
    text = "print the graph after this pass, or after all; repeatable"
    parser.add_argument("--print-after", action="append", default=[], metavar="PASS", help=text)


def add_extension_option(parser: argparse.ArgumentParser) -> None:
    """--extension."""
    text = "use an extension first (docs/extending.md): a Python module with an EXTENSION; may be given again"
    parser.add_argument("--extension", metavar="MODULE", action="append", default=[], help=text)


@contextmanager
def extensions(modules: Sequence[str]) -> Generator[None]:
    """Extensions in use, from these modules; raises ExtensionError."""
    with ExitStack() as stack:
        if modules:
            from unsay.compiler.extension import load

            for installed in map(load, modules):
                stack.callback(installed.remove)
                for name, problems in installed.replaced.items():
                    write_error(f"{name} is replaced by its fallback: {'; '.join(problems)}")
        yield


def print_after(names: Sequence[str], passes: Sequence[Pass]) -> After | None:
    """What prints the graph after the passes of these names; raises RequestError for one that will not run."""
    from unsay.compiler.ir.printer import print_graph

    run = [step.name for step in passes]
    for name in names:
        if name != "all" and name not in run:
            raise RequestError(f"--print-after {name}: no such pass is run here; these are: {', '.join(run)}")

    def show(step: Pass, graph: Graph, count: int) -> None:
        if step.name in names or "all" in names:
            write(f"// after {step.name}: {count} rewrites\n{print_graph(graph)}")

    return show if names else None


def read_graph(path: Path) -> Graph:
    """The graph of a file of LLMIR text, well formed, `-` for stdin; raises IrError that says `file:line:column:`.

    A file named .mlir holds the generic form of MLIR.
    """
    from unsay.compiler.dialect.verifier import verify
    from unsay.compiler.ir.mlir_reader import from_mlir
    from unsay.compiler.ir.parser import parse

    try:
        text = sys.stdin.read() if path == _STDIN else path.read_text(encoding="utf-8")
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise IrError(f"{path}: not LLMIR text: {error}") from error
    try:
        graph = from_mlir(text) if path.suffix == _MLIR else parse(text)
        verify(graph)
    except IrError as error:
        raise in_file(path, error) from error
    return graph


def graph_text(graph: Graph, output: Path | None) -> str:
    """LLMIR text, or the generic form of MLIR for a file named .mlir."""
    from unsay.compiler.ir.mlir import to_mlir
    from unsay.compiler.ir.printer import print_graph

    return to_mlir(graph) if output is not None and output.suffix == _MLIR else print_graph(graph)


def in_file(path: Path, error: IrError) -> IrError:
    """The same error, of a class of its own as before, that also names the file."""
    named = type(error)(f"{path}:{error}" if error.line else f"{path}: {error}")
    named.line, named.column, named.message = error.line, error.column, error.message
    return named
