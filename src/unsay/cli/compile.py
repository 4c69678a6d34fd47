"""Make a model ready to start at once: download it if need be, pack its weights and compile it.

With --emit, -o or --print-after nothing is packed or stored: what was asked for is written, and that is all.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from unsay.cli.options import DEFAULT_MODEL, add_json_option, add_kv_option, add_prefill_option
from unsay.cli.output import chosen_fields, progress_bars, write, write_file, write_files, write_json, write_line
from unsay.cli.passes import add_print_after_option, print_after
from unsay.errors import RequestError

_STAGES = ("llmir", "avm", "llvm", "asm", "object", "files")
_BINARY = ("avm", "object", "files")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    known = f"a known model or the path of a .gguf file or Hugging Face directory (default {DEFAULT_MODEL})"
    parser.add_argument("model", nargs="?", default=DEFAULT_MODEL, help=known)
    parser.add_argument("--target", metavar="T", help="instruction set to compile for (default: the best of this CPU)")
    add_kv_option(parser)
    add_prefill_option(parser)
    emitted = "write one stage instead: llmir, avm (the program), llvm, asm, object, or files: what the target's back "
    emitted += "end makes, into the directory OUT (default with -o: avm)"
    parser.add_argument("--emit", choices=_STAGES, metavar="STAGE", help=emitted)
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="where to write the stage (default: stdout)")
    add_print_after_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Compile it, and print where the image is or write the stage asked for."""
    from unsay import hub
    from unsay.default_target import default_target

    if args.emit or args.output or args.print_after:
        with progress_bars() as progress:
            source = hub.resolve(args.model, progress)
        _write_stage(args, source, args.target or default_target())
    else:
        _make_image(args)
    return 0


def _write_stage(args: argparse.Namespace, source: Path, target: str) -> None:
    from unsay.compiler.passes.pipeline import PIPELINE
    from unsay.compiler.stages import compile_to, target_files

    wanted = args.emit or ("avm" if args.output else "llmir")
    if wanted in _BINARY and args.output is None:
        raise RequestError(f"--emit {wanted} gives bytes, not text: say where to write them with -o OUT")
    if wanted == "files":
        after = print_after(args.print_after, PIPELINE)
        write_files(args.output, target_files(source, target, after, args.kv, args.prefill))
        return
    made = compile_to(source, target, wanted, print_after(args.print_after, PIPELINE), args.kv, args.prefill)
    if args.output is not None:
        write_file(args.output, made)
    elif args.emit:
        write(made.decode())


def _make_image(args: argparse.Namespace) -> None:
    from unsay import hub
    from unsay.compiler.compile import compile_model
    from unsay.default_target import default_target
    from unsay.image import Manifest

    start = time.perf_counter()
    with progress_bars() as progress:
        source = hub.resolve(args.model, progress)
        target = args.target or default_target()
        files = compile_model(source, target=target, kv=args.kv, prefill=args.prefill, progress=progress)
    seconds = time.perf_counter() - start
    spec = Manifest.from_json(files.manifest.read_text()).spec
    if args.json:
        made = {"model": str(source), "target": target, **chosen_fields(spec)}
        write_json({**made, "image": str(files.directory), "seconds": seconds})
    else:
        write_line(f"{source.name} for {target}: {files.directory} ({seconds:.2f} s)")
        write_line(f"keys and values: {spec.kv_format}, {spec.kv_layout.token_bytes} bytes a token")
        write_line(f"prompts: {spec.prefill}")
