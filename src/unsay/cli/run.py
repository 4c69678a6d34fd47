"""Stream an answer to one prompt, given as argument or on standard input.

To a pipe the answer is plain text. With --json every token is an object on a line of its own, and the last line
sums up.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from unsay.cli.options import (
    add_json_option,
    add_model_options,
    add_sampling_options,
    add_speculation_option,
    load_model,
    sampling_fields,
)
from unsay.cli.output import chosen_fields, visible, write, write_error, write_json
from unsay.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unsay.core import TokenEvent
    from unsay.image import ModelSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("prompt", nargs="?", help="what to ask; '-' or nothing reads standard input")
    parser.add_argument("--system", metavar="TEXT", help="system message (default: the model's own)")
    add_json_option(parser)
    add_model_options(parser)
    add_sampling_options(parser)
    add_speculation_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answer as it comes."""
    prompt = _read_prompt(args.prompt)
    with load_model(args) as model:
        chat = model.session(system=args.system, **sampling_fields(args))
        chat.user(prompt)
        events = chat.stream()
        if args.json:
            _print_events(events, len(chat.token_ids), model.spec)
        else:
            _print_text(events)
    return 0


def _read_prompt(given: str | None) -> str:
    if given is not None and given != "-":
        prompt = given
    elif given is None and sys.stdin.isatty():
        raise RequestError('no prompt: give one, as in unsay run "Why is the sky blue?", or pipe one in')
    else:
        prompt = sys.stdin.read()
    if not prompt.strip():
        raise RequestError("the prompt is empty: give some text")
    return prompt


def _print_text(events: Iterator[TokenEvent]) -> None:
    start = time.perf_counter()
    shown = visible if sys.stdout.isatty() else str
    num_tokens, text = 0, ""
    for event in events:
        num_tokens += 1
        text = event.text or text
        write(shown(event.text))
    if not text.endswith("\n"):
        write("\n")
    if sys.stderr.isatty():
        seconds = time.perf_counter() - start
        write_error(f"[{num_tokens} tokens in {seconds:.2f} s, prompt included]")


def _print_events(events: Iterator[TokenEvent], prompt_tokens: int, spec: ModelSpec) -> None:
    start = time.perf_counter()
    first_s, num_tokens, finish = None, 0, None
    for event in events:
        first_s = first_s or time.perf_counter() - start
        num_tokens, finish = num_tokens + 1, event.finish
        write_json(
            {"index": event.index, "token_id": event.token_id, "text": event.text, "logprob": event.logprob,
             "finish": event.finish}
        )  # fmt: skip
    write_json(
        {"summary": True, "prompt_tokens": prompt_tokens, "tokens": num_tokens, "finish": finish,
         "first_token_s": first_s, "total_s": time.perf_counter() - start, **chosen_fields(spec)}
    )  # fmt: skip
