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
from time import monotonic
from typing import Any

from unsay.errors import TemplateError
from unsay.session import template_program

_MOST_S = 30.0
"""For an answer, on a machine however busy: what the process may use of the processor is bounded in it."""

_CHUNK_BYTES = 1 << 16


class Sandbox:
    """Compiles in the constructor. Raises TemplateError for what the template does, whatever it is.

    After a rendering that had to be ended the next one starts a new process. Any thread may call.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        with self._lock:
            self._start()

    def render(self, values: dict[str, Any]) -> str:
        """What `template_program.render` makes of the values."""
        with self._lock:
            if self._process is None:
                self._start()
            return self._ask(values)

    def _start(self) -> None:
        command = [sys.executable, "-P", template_program.__file__]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        weakref.finalize(self, _end, self._process)
        self._answer()
        self._ask(self._source)

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
        while not pieces[-1].endswith(b"\n"):
            readable, _, _ = select.select([out], [], [], max(0.0, deadline - monotonic()))
            if not readable:
                raise self._ended()
            pieces.append(os.read(out.fileno(), _CHUNK_BYTES))
            if not pieces[-1]:
                raise self._ended()
        return b"".join(pieces)

    def _ended(self) -> TemplateError:
        process = self._running()
        _end(process)
        self._process = None
        if process.returncode == -signal.SIGPROF:
            why = f"it took more than {1e3 * template_program.MOST_CPU_S:.0f} ms of processor time"
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
