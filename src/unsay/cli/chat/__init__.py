"""Talk to a model, and correct it while it talks.

The answer stops as soon as you type, or at Ctrl-C. Then go back to a token with /back or the arrow keys; what you type
next is put there, and the answer goes on from it. /help lists the commands. Where standard input is no terminal, each
line is a message or a command.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from unsay.cli.options import (
    add_model_options,
    add_sampling_options,
    add_speculation_option,
    load_model,
    sampling_fields,
)

if TYPE_CHECKING:
    from unsay.cli.chat.talk import Talk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--system", metavar="TEXT", help="system message (default: the model's own)")
    add_model_options(parser)
    add_sampling_options(parser)
    add_speculation_option(parser)


def run(args: argparse.Namespace) -> int:
    """Talk until the user ends it."""
    from unsay.cli.chat.talk import Talk

    with load_model(args) as model:
        talk = Talk(model, model.session(system=args.system, **sampling_fields(args)))
        try:
            _talk(talk)
        finally:
            talk.close()
    return 0


def _talk(talk: Talk) -> None:
    if sys.stdin.isatty() and sys.stdout.isatty():
        from unsay.cli.chat.interactive import Interactive

        Interactive(talk).run()
    else:
        from unsay.cli.chat.plain import run_plain

        run_plain(talk)
