"""Options that several verbs share, and what they become. Nothing heavy is imported to print them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from unsay.errors import RequestError

if TYPE_CHECKING:
    from unsay.core import SamplingParams
    from unsay.model import Model

DEFAULT_MODEL = "smollm2:135m"
KV_FORMATS = ("auto", "f16", "f32", "int8")
PREFILLS = ("exact", "fast")
EXECUTORS = ("native", "reference", "checked", "null")

_SAMPLING = (
    ("temperature", float, "0 always takes the likeliest token (default 0.7)"),
    ("top-k", int, "keep only the K likeliest tokens; 0 is off (default 0)"),
    ("top-p", float, "keep the likeliest tokens that together have this probability; 1 is off (default 1)"),
    ("min-p", float, "keep tokens at least this likely relative to the likeliest; 0 is off (default 0)"),
    ("repetition-penalty", float, "divide logits of tokens already there; 1 is off (default 1)"),
    ("presence-penalty", float, "subtract from logits of tokens already there; 0 is off (default 0)"),
    ("frequency-penalty", float, "subtract this times how often a token is there; 0 is off (default 0)"),
    ("seed", int, "the same seed and prompt give the same answer (default 0)"),
    ("max-tokens", int, "most tokens of an answer (default 512)"),
)


def add_model_options(parser: argparse.ArgumentParser, program_names_model: bool = False) -> None:
    """--model, --threads, --target, --kv, --prefill, --executor.

    program_names_model: its model is the default, and nothing is a prompt.
    """
    group = parser.add_argument_group("model")
    default = "the one the program names, if any" if program_names_model else DEFAULT_MODEL
    known = f"a known model (`unsay list`) or the path of a .gguf file or Hugging Face directory (default {default})"
    group.add_argument("--model", default=None if program_names_model else DEFAULT_MODEL, metavar="M", help=known)
    group.add_argument("--threads", type=int, metavar="N", help="threads to compute with (default: one per core)")
    group.add_argument("--target", metavar="T", help="instruction set to compile for (default: the best of this CPU)")
    add_kv_option(group)
    if not program_names_model:
        add_prefill_option(group)
    group.add_argument("--executor", choices=EXECUTORS, default="native", help="what computes (default native)")
    text = "compute by the definition, slowly, and stop where an operation breaks an invariant"
    group.add_argument("--checked", dest="executor", action="store_const", const="checked", help=text)


def add_kv_option(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    """--kv."""
    text = "keep keys and values as this (default auto: f32 if the model's weights are, else f16)"
    parser.add_argument("--kv", choices=KV_FORMATS, default="auto", help=text)


def add_prefill_option(parser: argparse._ActionsContainer) -> None:  # pyright: ignore[reportPrivateUsage]
    """--prefill."""
    text = "compute prompts exactly (default), or fast: less accurate, for CPUs with AMX and no faster elsewhere"
    parser.add_argument("--prefill", choices=PREFILLS, default="exact", help=text)


def add_speculation_option(parser: argparse.ArgumentParser) -> None:
    """--no-speculation."""
    same = "compute one token at a time: the answer is the same, and comes slower where it repeats itself"
    parser.add_argument("--no-speculation", dest="speculate", action="store_false", help=same)


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """--temperature, --seed, --stop and the others of SamplingParams."""
    group = parser.add_argument_group("sampling")
    for name, kind, text in _SAMPLING:
        group.add_argument(f"--{name}", type=kind, metavar="N" if kind is int else "X", help=text)
    group.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before this text; repeatable")
    group.add_argument("--ignore-eos", action="store_true", default=None, help="go on when the model would end")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="print JSON, one value a line")


def sampling_fields(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of SamplingParams that were given."""
    names = [name.replace("-", "_") for name, _, _ in _SAMPLING] + ["ignore_eos"]
    fields = {name: value for name in names if (value := getattr(args, name)) is not None}
    if args.stop:
        fields["stop"] = tuple(args.stop)
    return fields


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """The options as SamplingParams; what is not given keeps its default."""
    from unsay.core import SamplingParams

    return SamplingParams(**sampling_fields(args))


def load_model(args: argparse.Namespace) -> Model:
    """The model the options name, with progress bars while it is fetched and compiled."""
    from unsay.cli.output import progress_bars
    from unsay.model import load

    if args.threads is not None and args.threads < 1:
        raise RequestError(f"--threads {args.threads}: it must be 1 or more")
    with progress_bars() as progress:
        return load(
            args.model, target=args.target, num_threads=args.threads, executor=args.executor, kv=args.kv,
            prefill=args.prefill, speculate=getattr(args, "speculate", True), progress=progress,
        )  # fmt: skip
