"""Figures of whole processes, each started for one sample: to the first token, and the most memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.peers.contestants import Contestant
from benchmarks.peers.field import Asked, Field, say
from benchmarks.peers.protocol import Child


class _Starter:
    """Asked for a first token, it makes a process that gives one. Python keeps bytecode, as an installer would."""

    def __init__(self, field: Field, contestant: Contestant, is_cold: bool = False) -> None:
        self._field, self._contestant, self._is_cold = field, contestant, is_cold
        self.pid = os.getpid()

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Seconds from the creation of the process until its answer is here."""
        with tempfile.TemporaryDirectory() as directory:
            env = {"PYTHONDONTWRITEBYTECODE": ""} | ({"UNSAY_CACHE": directory} if self._is_cold else {})
            child = self._contestant.start(self._field.model, self._field.threads, env)
            try:
                child.ask(verb, **arguments)
                return {"seconds": perf_counter() - child.started}
            finally:
                child.close()


def warm_start(field: Field, work: str, names: Sequence[str], ids: list[int], num_rounds: int) -> None:
    """Everything is where an earlier start left it, and the file in memory."""
    starters: dict[str, Asked] = {name: _Starter(field, field.everybody[name]) for name in field.present(work, names)}
    _rounds(field, work, starters, ids, num_rounds)


def cold_start(field: Field, work: str, name: str, ids: list[int], num_rounds: int) -> None:
    """With an empty cache directory; the model file is in memory already, as after a download."""
    field.present(work, ())
    _rounds(field, work, {name: _Starter(field, field.everybody[name], is_cold=True)}, ids, num_rounds)


def peak_memory(field: Field, work: str, names: Sequence[str], ids: list[int], count: int) -> None:
    """Megabytes beyond the model file and f16 keys and values of all tokens; of mapped files what is in RAM."""
    used_bytes = Path(field.model).stat().st_size + (len(ids) + count) * field.kv_token_bytes()
    for name in field.present(work, names):
        say(f"{work}: {name}")
        child = field.everybody[name].start(field.model, field.threads)
        field.results.add(work, name, [(_peak_bytes(child, ids, count) - used_bytes) / 1e6], [0.0])


def _peak_bytes(child: Child, ids: list[int], count: int) -> int:
    try:
        child.ask("hold", contexts=[ids])
        child.ask("decode", count=count)
        return child.ask("peak_bytes")["peak_bytes"]
    finally:
        child.close()


def _rounds(field: Field, work: str, starters: dict[str, Asked], ids: list[int], num_rounds: int) -> None:
    field.rounds(
        work, starters, num_rounds, lambda starter, _: starter.ask("prefill", ids=ids), lambda answer: answer["seconds"]
    )
