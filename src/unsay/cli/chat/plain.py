"""The chat where standard input is no terminal: every line is a message, a correction or a command, in order."""

from __future__ import annotations

import sys
import threading

from unsay.cli.chat import show
from unsay.cli.chat.generation import Generation
from unsay.cli.chat.talk import Reply, Talk
from unsay.cli.output import visible, write, write_line
from unsay.errors import UnsayError

_POLL_S = 0.05
"""The end of an answer is seen within this time."""


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
    _stream(talk)
    write_line()
    if reply.is_correction and talk.session.correction is not None:
        write_line(show.truth(talk.session.correction))


def _stream(talk: Talk) -> None:
    """Show the answer as it comes. It is made on another thread, so that Ctrl-C always finds this one waiting."""
    news = threading.Event()
    generation = Generation(talk.session, news.set)
    try:
        while not generation.is_over:
            news.wait(_POLL_S)
            news.clear()
            _show(generation)
    except KeyboardInterrupt:
        generation.stop()
        _show(generation)
        write_line("\n[stopped]")
    finally:
        generation.stop()
    _show(generation)


def _show(generation: Generation) -> None:
    for event in generation.take():
        write(visible(event.text))
