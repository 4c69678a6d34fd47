"""Make a model ready to start at once: download it if need be, pack its weights and compile it."""

from __future__ import annotations

import argparse
import time

from unsay.cli.options import DEFAULT_MODEL, add_json_option
from unsay.cli.output import progress_bars, write_json, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    known = f"a known model or the path of a .gguf file (default {DEFAULT_MODEL})"
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, help=known)
    parser.add_argument("--target", metavar="T", help="instruction set to compile for (default: the best of this CPU)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Compile it and print where the image is."""
    from unsay import hub
    from unsay.compiler.compile import compile_model
    from unsay.runtime.cpu import best_target

    start = time.perf_counter()
    with progress_bars() as progress:
        source = hub.resolve(args.model, progress)
        target = args.target or best_target()
        files = compile_model(source, target=target, progress=progress)
    seconds = time.perf_counter() - start
    if args.json:
        write_json({"model": str(source), "target": target, "image": str(files.directory), "seconds": seconds})
    else:
        write_line(f"{source.name} for {target}: {files.directory} ({seconds:.2f} s)")
    return 0
