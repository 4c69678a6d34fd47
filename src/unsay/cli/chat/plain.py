"""The chat where standard input is no terminal: every line is a message, a correction or a command, in order."""

from __future__ import annotations

import sys

from unsay.cli.chat import show
from unsay.cli.chat.talk import Reply, Talk
from unsay.cli.output import visible, write, write_line
from unsay.errors import UnsayError


def run_plain(talk: Talk) -> None:
    """Obey every line until the end of input or /quit. A line that cannot be obeyed is answered with why."""
    for line in sys.stdin:
        try:
            _answer(talk, talk.do(line.rstrip("\r\n")))
        except UnsayError as error:
            write_line(f"! {error}")
        if talk.is_over:
            return


def _answer(talk: Talk, reply: Reply) -> None:
    for line in reply.lines:
        write_line(line)
    if not reply.streams:
        return
    try:
        for event in talk.session.stream():
            write(visible(event.text))
    except KeyboardInterrupt:
        talk.session.interrupt()
        write_line("\n[stopped]")
    write_line()
    if reply.is_correction and talk.session.correction is not None:
        write_line(show.truth(talk.session.correction))
