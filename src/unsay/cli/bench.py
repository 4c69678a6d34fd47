"""Measure this machine with a model: decoding, reading prompts, corrections, forks.

decode   tokens a second, beside what the memory's read bandwidth would allow
prefill  tokens a second of reading a prompt; with --prefill fast also how many times as fast as exactly
correct  interrupt to stop, rollback, fork, injection to first new token
fork     memory that a thousand forks of one context add
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from unsay.cli.options import add_json_option, add_model_options
from unsay.cli.output import chosen_fields, progress_bars, write_json, write_line
from unsay.errors import RequestError

if TYPE_CHECKING:
    from unsay.benchmark.hardware import Hardware
    from unsay.image import ModelSpec
    from unsay.model import Model

_CONTEXTS = {"decode": (128, 2048), "prefill": (512, 2048), "correct": (512, 2048, 8000), "fork": (2000,)}
_SESSIONS = (1, 4, 8)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`unsay bench WHAT`."""
    parser.add_argument("what", choices=tuple(_CONTEXTS), help="what to measure")
    parser.add_argument("--context", type=int, action="append", metavar="N", help="context length; repeatable")
    parser.add_argument("--samples", type=int, default=200, metavar="N", help="samples, or forks / 5 (default 200)")
    add_json_option(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print one result for each context."""
    from unsay.benchmark.hardware import describe

    if args.samples < 1:
        raise RequestError(f"--samples {args.samples}: it must be 1 or more")
    hardware = describe()
    model, target, weights_bytes = _open(args, args.prefill)
    with model, _beside(args) as exact:
        _write_head(args, hardware, target, model.spec)
        for result in _results(args, model, exact, hardware, weights_bytes):
            _write_result(args, hardware, target, model.spec, result)
    return 0


def _beside(args: argparse.Namespace) -> AbstractContextManager[Model | None]:
    """The model that reads prompts exactly, where that is what to compare with."""
    return _open(args, "exact")[0] if (args.what, args.prefill) == ("prefill", "fast") else nullcontext()


def _open(args: argparse.Namespace, prefill: str) -> tuple[Model, str, int]:
    """The model, the target its code is for, and the bytes of its packed weights."""
    from unsay import hub
    from unsay.compiler.compile import compile_model
    from unsay.default_target import default_target
    from unsay.image import Manifest
    from unsay.model import open_image

    with progress_bars() as progress:
        files = compile_model(
            hub.resolve(args.model, progress),
            target=args.target or default_target(),
            kv=args.kv,
            prefill=prefill,
            progress=progress,
        )
    manifest = Manifest.from_json(files.manifest.read_text())
    model = open_image(files, num_threads=args.threads, executor=args.executor, speculate=False)
    return model, manifest.target, manifest.weights_bytes


def _results(
    args: argparse.Namespace, model: Model, exact: Model | None, hardware: Hardware, weights_bytes: int
) -> Iterator[Any]:
    from unsay.benchmark.correct import correct
    from unsay.benchmark.forks import fork
    from unsay.benchmark.throughput import decode, prefill

    for context in args.context or _CONTEXTS[args.what]:
        if args.what == "correct":
            yield correct(model, context=context, samples=args.samples)
        elif args.what == "fork":
            yield fork(model, context=context, num_forks=5 * args.samples)
        elif args.what == "prefill":
            yield prefill(model, exact, num_tokens=context, repeats=max(3, args.samples // 40))
        else:
            for num_sessions in _SESSIONS:
                yield decode(
                    model, context=context, num_sessions=num_sessions, num_tokens=args.samples,
                    weights_bytes=weights_bytes, read_bandwidth=hardware.read_bandwidth,
                )  # fmt: skip


def _write_head(args: argparse.Namespace, hardware: Hardware, target: str, spec: ModelSpec) -> None:
    if not args.json:
        write_line(
            f"{hardware.cpu}, {hardware.cores} cores, {hardware.read_bandwidth / 1e9:.1f} GB/s read, "
            f"load {hardware.load:.1f}, {target}, unsay {hardware.unsay}, Python {hardware.python}, "
            f"{spec.kv_layout.token_bytes} bytes of keys and values a token ({spec.kv_format}), {spec.prefill} prompts"
        )


def _write_result(args: argparse.Namespace, hardware: Hardware, target: str, spec: ModelSpec, result: Any) -> None:
    fields = asdict(result)
    if args.json:
        about = {"bench": args.what, "model": args.model, "target": target, **chosen_fields(spec)}
        write_json({**about, **fields, "hardware": asdict(hardware)})
        return
    write_line()
    for name in fields:
        value = getattr(result, name)
        write_line(f"  {name:<20}{value:.2f}" if isinstance(value, float) else f"  {name:<20}{value}")
