"""Verbs over a pipe: one JSON object a line each way. Runs in every peer's environment: standard library only.

A verb is a method of the engine, its arguments are the request's. It answers with a dictionary, or raises `Unable`
where the engine cannot do that work: the parent gets the reason. Any other exception ends the child, and is the
parent's `ChildDiedError`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine is started with. kv: "f16" or "int8", the format of keys and values in memory. options: the
    engine's own."""

    model: str
    threads: int
    kv: str = "f16"
    options: dict[str, Any] = field(default_factory=dict[str, Any])


class Unable(Exception):  # noqa: N818, an answer rather than an error
    """The engine, or the version that is here, cannot do this work; the message says why."""


class ChildDiedError(Exception):
    """A contestant's process ended in the middle of a verb; what it wrote is on standard error."""


def serve(open_engine: Callable[[Settings], Any]) -> None:
    """The child's end: open the engine, then do what is asked until the pipe is closed."""
    answers = _own_stdout()
    try:
        engine = open_engine(Settings(**json.loads(sys.argv[1])))
    except Unable as reason:
        _answer(answers, {"unable": str(reason)})
        return
    _answer(answers, engine.about())
    for line in sys.stdin:
        request = json.loads(line)
        _answer(answers, _do(engine, request))


def _do(engine: Any, request: dict[str, Any]) -> dict[str, Any]:
    verb = request.pop("do")
    if verb == "peak_bytes":
        return {"peak_bytes": peak_bytes()}
    try:
        return getattr(engine, verb)(**request) or {}
    except Unable as reason:
        return {"unable": str(reason)}


def peak_bytes() -> int:
    """The most memory this process has had in RAM, mapped files included."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Child:
    """The parent's end. `about` is the engine's own account of itself; start_s: from the process' creation to that."""

    def __init__(self, python: str, module: str, settings: Settings, env: dict[str, str] | None = None) -> None:
        self.started = perf_counter()
        self._process = subprocess.Popen(
            [python, "-m", module, json.dumps(asdict(settings))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT, env={**os.environ, **(env or {})},
        )  # fmt: skip
        try:
            self.about = self._receive(module)
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Raises Unable with the engine's reason, ChildDiedError if its process ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": verb, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildDiedError(f"the process had ended before it was asked to {verb}") from None
        return self._receive(verb)

    @property
    def pid(self) -> int:
        """Of the engine's process."""
        return self._process.pid

    def close(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _receive(self, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ChildDiedError(f"the process ended in {what}, status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "unable" in answer:
            raise Unable(answer["unable"])
        return answer


def _own_stdout() -> TextIO:
    """Standard output for answers alone: what native code prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _answer(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
