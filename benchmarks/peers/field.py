"""The contestants' processes, and asking them in turn."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Protocol

from benchmarks.peers.contestants import OURS, Contestant
from benchmarks.peers.environment import PeerUnavailableError
from benchmarks.peers.protocol import Child, ChildDiedError, Unable
from benchmarks.peers.quiet import Watch
from benchmarks.peers.results import Results


class Asked(Protocol):
    """A `Child`, or what answers like one."""

    @property
    def pid(self) -> int:
        """Of the process that does the work."""
        ...

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Raises Unable."""
        ...


Ask = Callable[[Asked, int], dict[str, Any]]
"""What to ask a contestant in a round; the number of the round, from 0."""


class Field:
    """Starts a process when its work is first wanted, and keeps it: an idle contestant takes memory and no time."""

    def __init__(
        self, model: str, threads: int, everybody: Mapping[str, Contestant], results: Results, watch: Watch
    ) -> None:
        self.model, self.threads, self.results, self.watch = model, threads, results, watch
        self.everybody = everybody
        self._children: dict[str, Child] = {}
        self._absent: dict[str, str] = {}

    def present(self, work: str, names: Sequence[str]) -> dict[str, Asked]:
        """Those that can be had, for a work that begins; why the others cannot is in the results."""
        self.results.begin(work)
        for name in names:
            self._start(name)
            if name in self._absent:
                self.results.refuse(work, name, self._absent[name])
        return {name: self._children[name] for name in names if name in self._children}

    def prepare(self, work: str, children: dict[str, Asked], ask: Callable[[Asked], dict[str, Any]]) -> dict[str, Any]:
        """Ask everybody once, off the clock; who is unable is left out from here on."""
        answers: dict[str, Any] = {}
        for name in tuple(children):
            say(f"{work}: {name}")
            try:
                answers[name] = ask(children[name])
            except (Unable, ChildDiedError) as reason:
                self._lose(work, children, name, reason)
        return answers

    def rounds(
        self,
        work: str,
        children: dict[str, Asked],
        num_rounds: int,
        ask: Ask,
        value: Callable[[dict[str, Any]], float],
    ) -> dict[str, list[dict[str, Any]]]:
        """A B A B ...: everybody once in each round. The values go to the results, all answers are given back. Who
        fails in a round has no figure."""
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in children}
        shares: dict[str, list[float]] = {name: [] for name in children}
        for number in range(num_rounds):
            for name, child in tuple(children.items()):
                try:
                    answer, share = self.watch.undisturbed(lambda: ask(child, number), [child.pid])  # noqa: B023
                except (Unable, ChildDiedError) as reason:
                    self._lose(work, children, name, reason)
                    continue
                answers[name].append(answer)
                shares[name].append(share)
                say(f"{work}: round {number + 1} of {num_rounds}: {name}: {value(answer):.4g}")
        for name in children:
            self.results.add(work, name, [value(answer) for answer in answers[name]], shares[name])
        return {name: answers[name] for name in children}

    def perplexity(
        self, work: str, children: dict[str, Asked], windows: Sequence[list[int]], first_scored: int
    ) -> None:
        """Off the clock: exp of the mean negative log-likelihood over all windows."""
        for name, child in tuple(children.items()):
            say(f"{work}: {name}")
            try:
                total = sum(child.ask("perplexity", window=ids, first_scored=first_scored)["nll"] for ids in windows)
            except (Unable, ChildDiedError) as reason:
                self._lose(work, children, name, reason)
                continue
            self.results.add(work, name, [math.exp(total / sum(len(ids) - first_scored for ids in windows))], [0.0])

    def kv_token_bytes(self, name: str = OURS) -> int:
        """Bytes of one token's keys and values, as an engine of ours keeps them."""
        return self._children[name].about["kv_token_bytes"]

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.close()
        self._children.clear()

    def _lose(self, work: str, children: dict[str, Asked], name: str, reason: Unable | ChildDiedError) -> None:
        """A contestant takes no further part in this work; in none, if its process is gone."""
        self.results.refuse(work, name, str(reason))
        del children[name]
        if isinstance(reason, ChildDiedError) and name in self._children:
            self._children.pop(name).close()
            self._absent[name] = str(reason)

    def _start(self, name: str) -> None:
        if name in self._children or name in self._absent:
            return
        if name not in self.everybody:
            self._absent[name] = "not asked for"
            return
        say(f"starting {name}")
        try:
            self._children[name] = child = self.everybody[name].start(self.model, self.threads)
        except (PeerUnavailableError, Unable) as reason:
            self._absent[name] = str(reason)
            return
        own = {"version": version("unsay")} if self.everybody[name].module == "unsay_engine" else {}
        told = {**own, **child.about}  # ours does not look it up: that takes a good part of a start
        self.results.versions[name] = ", ".join(str(told[key]) for key in ("version", "build") if key in told)


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)
