"""A chat template in a process of its own: one that goes on and on, or takes all memory, ends there and not here.

Fuel bounds what a template does step by step. It does not bound what one step does: adding a list to itself sixty times
is sixty steps, and then its length is asked for.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from unsay.errors import TemplateError
from unsay.forked import begins_anew, free
from unsay.session import template_program

MOST_CPU_S = 0.04
_MOST_S = 30.0
"""For an answer, on a machine however busy: what the process may use of the processor is bounded in it."""

_CHUNK_BYTES = 1 << 16
_NO_PYTHON = "the chat template runs in a Python of its own, and sys.executable, {!r}, is none: {}"


class Sandbox:
    """Compiles in the constructor. Raises TemplateError for what the template does, whatever it is.

    After a rendering that had to be ended the next one starts a new process. Any thread may call.
    most_cpu_s: seconds of a processor for compiling and for each rendering; templates take a millisecond.
    """

    def __init__(self, source: str, most_cpu_s: float = MOST_CPU_S) -> None:
        self._source = source
        self._most_cpu_s = most_cpu_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        with self._lock, self._in_step():
            self._start()
        begins_anew(self)

    def begin_anew(self) -> None:
        """In a forked child, which `render` gives a process of its own."""
        free(self._lock)

    def render(self, values: dict[str, Any]) -> str:
        """What `template_program.render` makes of the values."""
        with self._lock, self._in_step():
            if self._process is None or self._owner != os.getpid():
                self._start()
            return self._ask(values)

    @contextmanager
    def _in_step(self) -> Generator[None]:
        """A question whose answer was not waited for ends the process: the next would get that answer."""
        try:
            yield
        except TemplateError:
            raise
        except BaseException:
            self._stop()
            raise

    def _start(self) -> None:
        """In a session of its own, so that Ctrl-C in a terminal does not end it; a forked child has one of its own."""
        command = [sys.executable or "", "-P", template_program.__file__, str(self._most_cpu_s)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise TemplateError(_NO_PYTHON.format(command[0], error)) from None
        self._owner = os.getpid()
        weakref.finalize(self, _end, self._process)
        try:
            self._answer()
        except (TemplateError, ValueError) as error:
            self._stop()
            raise TemplateError(_NO_PYTHON.format(command[0], error)) from None
        self._ask(self._source)

    def _stop(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None

    def _ask(self, question: object) -> str:
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        return self._answer()

    def _answer(self) -> str:
        answer = json.loads(self._read_line())
        if "error" in answer:
            raise TemplateError(f"the chat template of the model failed: {answer['error']}")
        return answer["text"]

    def _read_line(self) -> bytes:
        out = self._running().stdout
        assert out is not None
        deadline, pieces = monotonic() + _MOST_S, [b""]
        poll = select.poll()  # select() refuses descriptors from 1024 on
        poll.register(out, select.POLLIN)
        while not pieces[-1].endswith(b"\n"):
            if not poll.poll(1e3 * max(0.0, deadline - monotonic())):
                self._stop()
                raise TemplateError(f"the chat template of the model failed: no answer within {_MOST_S:.0f} s")
            pieces.append(os.read(out.fileno(), _CHUNK_BYTES))
            if not pieces[-1]:
                raise self._ended()
        return b"".join(pieces)

    def _ended(self) -> TemplateError:
        process = self._running()
        _end(process)
        self._process = None
        if process.returncode == -signal.SIGPROF:
            why = f"it took more than {1e3 * self._most_cpu_s:.0f} ms of processor time"
        else:
            why = f"it ended the process it ran in (exit status {process.returncode}): too much memory, or too deep"
        return TemplateError(f"the chat template of the model failed: {why}")

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it and give its pipes back; idempotent."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None and not pipe.closed:
            try:
                pipe.close()
            except BrokenPipeError:
                continue
