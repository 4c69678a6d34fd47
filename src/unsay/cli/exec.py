"""Run an AVM program, from assembly text or from a program file.

Inputs are what SENSE USER_INPUT finds, in order. A correction comes while the program runs: --correct 12:30:TEXT says,
after the 12th token it emits, "go back to position 30 of the context and say TEXT there".
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from unsay.cli.options import add_json_option, add_model_options
from unsay.cli.output import write_json, write_line
from unsay.errors import RequestError

if TYPE_CHECKING:
    from unsay.cli.host import Host
    from unsay.core import Float32Array
    from unsay.vm.assembler import Assembly
    from unsay.vm.context import Context
    from unsay.vm.execution import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("program", type=Path, metavar="PROG", help="assembly text or program file")
    parser.add_argument("--prompt", metavar="TEXT", help="tokens the first context begins with")
    parser.add_argument(
        "--input", action="append", default=[], metavar="TEXT", help="a record of USER_INPUT; repeatable"
    )
    correct = "after N tokens, a correction: back to position AT, say TEXT; repeatable"
    parser.add_argument("--correct", action="append", default=[], metavar="N:AT:TEXT", help=correct)
    parser.add_argument("--max-steps", type=int, default=1_000_000, metavar="N", help="most instructions to run")
    add_json_option(parser)
    add_model_options(parser, program_names_model=True)


def run(args: argparse.Namespace) -> int:
    """Run it, and print what each context holds; the likeliest next tokens if none was emitted."""
    from unsay.cli.host import open_host
    from unsay.vm.program_file import read_program

    assembly = read_program(args.program)
    args.model = args.model or assembly.model
    with open_host(args) as host:
        emitted, outcome = _execute(host, assembly, args)
        for number, context in outcome.contexts.items():
            _print_context(host, number, context, emitted.get(number, []), args.json)
        if not emitted and outcome.logits is not None:
            _print_logits(host, outcome.logits, args.json)
    return 0


def _correction(text: str) -> tuple[int, int, str]:
    after, _, rest = text.partition(":")
    at, colon, words = rest.partition(":")
    if not (after.isdecimal() and at.isdecimal() and colon):
        raise RequestError(f"--correct {text!r}: it must be N:AT:TEXT, two numbers and the text")
    return int(after), int(at), words


def _execute(host: Host, assembly: Assembly, args: argparse.Namespace) -> tuple[dict[int, list[int]], Outcome]:
    """Run to the end, posting each correction when its time has come: (tokens by context, outcome)."""
    from unsay.isa.opcodes import Peripheral
    from unsay.vm.context import Context
    from unsay.vm.peripherals import Peripherals

    corrections = sorted(_correction(text) for text in args.correct)
    peripherals = Peripherals()
    for text in args.input:
        peripherals.post(Peripheral.USER_INPUT, host.encode(text))
    context = Context(host.tree.root())
    context.append(host.encode(args.prompt or ""))
    events = host.machine.execute(assembly.program, context, peripherals=peripherals, max_steps=args.max_steps)
    emitted: dict[int, list[int]] = {}
    while True:
        if not corrections:
            peripherals.close()
        try:
            event = next(events)
        except StopIteration as stop:
            return emitted, stop.value
        emitted.setdefault(event.context_id, []).append(event.token_id)
        while corrections and corrections[0][0] <= sum(map(len, emitted.values())):
            _, at, text = corrections.pop(0)
            peripherals.post(Peripheral.USER_INPUT, host.encode(text), target=at)


def _print_context(host: Host, number: int, context: Context, emitted: list[int], as_json: bool) -> None:
    """What a context holds in the end; as JSON also what it emitted on the way, words taken back included."""
    token_ids = context.branch.token_ids() + context.pending
    text = host.decode(token_ids)
    if as_json:
        write_json({"context": number, "token_ids": token_ids, "text": text, "emitted": emitted})
    else:
        write_line(f"{number}: {text}")


def _print_logits(host: Host, logits: Float32Array, as_json: bool) -> None:
    """The five likeliest next tokens."""
    best = [(token_id, float(logits[token_id])) for token_id in (-logits).argsort(kind="stable")[:5].tolist()]
    if as_json:
        write_json({"likeliest": [token_id for token_id, _ in best], "logits": [logit for _, logit in best]})
    for token_id, logit in [] if as_json else best:
        write_line(f"{token_id:>7} {logit:10.4f}  {host.decode([token_id])}")
