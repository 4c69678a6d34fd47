"""Measure how well a model predicts a text."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from unsay.cli.options import add_json_option, add_model_options, load_model
from unsay.cli.output import progress_bars, write_json, write_line
from unsay.errors import RequestError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`unsay eval perplexity --text FILE`."""
    parser.add_argument("measure", choices=("perplexity",), help="what to measure")
    parser.add_argument("--text", required=True, type=Path, metavar="FILE", help="a UTF-8 text file")
    parser.add_argument("--context", type=int, default=512, metavar="N", help="tokens of a window (default 512)")
    parser.add_argument("--stride", type=int, metavar="N", help="tokens a window moves by (default: the context)")
    add_json_option(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print the perplexity of the text."""
    from unsay.evaluation import perplexity

    text = _read(args.text)
    model = load_model(args)
    with progress_bars() as progress:
        result = perplexity(model, model.tokenize(text), context=args.context, stride=args.stride, progress=progress)
    if args.json:
        write_json({"model": args.model, "text": str(args.text), **asdict(result)})
    else:
        write_line(
            f"perplexity {result.perplexity:.4f} over {result.num_scored} of {result.num_tokens} tokens "
            f"(context {result.context}, stride {result.stride}, {result.seconds:.1f} s)"
        )
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}; give --text a text file") from error
    except UnicodeDecodeError as error:
        raise RequestError(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error
