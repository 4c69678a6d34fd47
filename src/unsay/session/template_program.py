"""A chat template as minijinja runs it. As a script: the process that runs one template for `sandbox.Sandbox`.

    in:   a line of JSON, the source; then one for each rendering, {"fuel", "messages", ...}
    out:  "ready"; then for each line of input {"text"} or {"error"}

Its argument is how many seconds of a processor each line may take; then SIGPROF ends the process.

A script imports nothing of unsay, so that it starts in the time that Python takes.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import minijinja

_MEMORY_BYTES = 1 << 30
_LARGEST_INDENT = 16


def compiled(source: str) -> minijinja.Environment:
    """The template, ready to be rendered under the name "chat"; no loader, so it reads no files."""
    environment = minijinja.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.add_filter("tojson", _to_json)
    environment.add_template("chat", source)
    return environment


def render(environment: minijinja.Environment, values: dict[str, Any]) -> str:
    """The conversation as the template has it. Operations and bytes made cost fuel; arguments cannot be changed."""
    environment.fuel = values["fuel"]
    messages = tuple(MappingProxyType(message) for message in values["messages"])
    return environment.render_template("chat", **{**values, "messages": messages, "raise_exception": _raise_exception})


def reason(error: BaseException) -> str:
    """The first line of what went wrong."""
    return (str(error) or type(error).__name__).split("\n", 1)[0]


def _to_json(value: object, indent: int | None = None, ensure_ascii: bool = False) -> str:
    if indent is not None and not 0 <= indent <= _LARGEST_INDENT:
        raise ValueError(f"tojson with an indent of {indent}; it must be in 0..{_LARGEST_INDENT}")
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii)


def _raise_exception(*reasons: object) -> str:
    raise ValueError(*reasons)


def _answer(most_cpu_s: float, work: Callable[[], str]) -> None:
    signal.setitimer(signal.ITIMER_PROF, most_cpu_s)
    try:
        answer = {"text": work()}
    except BaseException as error:  # noqa: BLE001  what a template does to our objects raises anything
        answer = {"error": reason(error)}
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps(answer), flush=True)  # noqa: T201


def _serve(most_cpu_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print('{"text": "ready"}', flush=True)  # noqa: T201
    made: list[minijinja.Environment] = []
    source = json.loads(sys.stdin.readline())
    _answer(most_cpu_s, lambda: made.append(compiled(source)) or "compiled")
    for line in sys.stdin:
        values = json.loads(line)
        _answer(most_cpu_s, lambda values=values: render(made[0], values))


if __name__ == "__main__":
    _serve(float(sys.argv[1]))
