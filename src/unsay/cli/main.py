"""The command line: a table of verbs, each a module imported only when its verb is run.

A verb's module has two functions, `add_arguments(parser)` and `run(args) -> int` (the exit code: 0 done, 1 failed).
It raises UnsayError for what the user can mend; that is printed as one line. Usage errors exit with 2.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol, cast

from unsay.cli.output import OutputError, flush, write_error, write_line
from unsay.errors import UnsayError

HELP_WIDTH = 100


class VerbModule(Protocol):
    """What the module of a verb provides."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options of the verb."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        ...


class Verb(NamedTuple):
    """One row of the table: where the verb's module is, and its line in `unsay --help`.

    No dataclass: importing what makes one takes a fifth of the time help may take.
    """

    module: str
    summary: str

    def load(self) -> VerbModule:
        """Import the module."""
        return cast(VerbModule, importlib.import_module(self.module))


VERBS: dict[str, Verb] = {
    "run": Verb("unsay.cli.run", "stream an answer to one prompt"),
    "chat": Verb("unsay.cli.chat", "talk to a model, and correct it while it talks"),
    "pull": Verb("unsay.cli.pull", "download a model into the cache"),
    "list": Verb("unsay.cli.list", "show the models known and what the cache holds"),
    "compile": Verb("unsay.cli.compile", "make a model ready to start at once"),
    "import": Verb("unsay.cli.import_model", "read a model or kernel from elsewhere as LLMIR"),
    "opt": Verb("unsay.cli.opt", "run passes on a graph given as LLMIR text"),
    "verify": Verb("unsay.cli.verify", "prove what a compilation relies on"),
    "doctor": Verb("unsay.cli.doctor", "check this machine, and say how to mend what is missing"),
    "asm": Verb("unsay.cli.asm", "assemble an AVM program, or print the one of a model"),
    "disasm": Verb("unsay.cli.disasm", "print an AVM program file as assembly"),
    "exec": Verb("unsay.cli.exec", "run an AVM program"),
    "eval": Verb("unsay.cli.eval", "measure how well a model predicts a text"),
    "bench": Verb("unsay.cli.bench", "measure decoding, prefill, corrections and forks"),
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of `unsay` itself; what follows the verb is left to the verb's own parser."""
    lines = "\n".join(f"  {name:<9}{verb.summary}" for name, verb in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="unsay",
        usage="unsay [--version] [--help] VERB ...",
        description="An LLM inference engine that can take words back.",
        epilog=f"verbs:\n{lines}\n\n`unsay VERB --help` says more of each.",
        formatter_class=_plain_formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("verb", nargs="?", metavar="VERB", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def make_verb_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    verb = VERBS[name]
    module = verb.load()
    parser = argparse.ArgumentParser(
        prog=f"unsay {name}",
        description=(module.__doc__ or verb.summary).strip(),
        formatter_class=_plain_formatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `unsay`; returns the exit code."""
    _start_lightly()
    try:
        _prepare_streams()
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except OutputError as error:
        _drop_output()
        write_error(f"unsay: {error}")
        return 1
    except UnsayError as error:
        write_error(f"unsay: {error}")
        return 1
    except KeyboardInterrupt:
        write_error("")
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader went away: `unsay run ... | head`
        return 141


def _dispatch(argv: list[str]) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.version:
        return _print_version()
    if args.verb is None:
        write_error(parser.format_help())
        return 2
    if args.verb not in VERBS:
        parser.error(f"no verb {args.verb!r}; there are: {', '.join(VERBS)}")
    verb_args = make_verb_parser(args.verb).parse_args(args.rest)
    code = verb_args.run(verb_args)
    flush()
    return code


def _start_lightly() -> None:
    """Imports make many objects and hardly any garbage. NumPy's BLAS would spin for 30 ms once it is imported."""
    gc.set_threshold(20_000)
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")


def _prepare_streams() -> None:
    """No byte given and no character printed ends in a traceback, nor does a stream the caller closed (`>&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, f"__{name}__") is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    if sys.__stdout__ is None:
        raise OutputError("standard output is closed; send it to a file, or to /dev/null")
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _drop_output() -> None:
    """Send what stdout still holds nowhere; Python would complain again while it flushes at exit."""
    with suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version() -> int:
    from importlib.metadata import version

    write_line(f"unsay {version('unsay')}")
    return 0


def _plain_formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30, width=HELP_WIDTH)
