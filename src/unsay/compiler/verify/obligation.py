"""What there is to prove: a name, the tier of docs/verification.md, a method, and a way to decide it.

`prove` does not raise for a claim that is wrong or too hard: it answers refuted, with values that show it, or unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Status(Enum):
    """How an attempt at a proof ended. Only PROVED lets anything pass."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Result:
    """detail: values of a counterexample when refuted, the reason when unknown, else what was counted or found."""

    status: Status
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Obligation:
    """One claim. tier: "T0" .. "T5"; method: in words, "bit-vectors", "induction", "LIA" ..."""

    name: str
    tier: str
    method: str
    prove: Callable[[], Result]


class NotProvedError(Exception):
    """Ends an attempt from deep inside it; `result` is how."""

    def __init__(self, result: Result, where: str) -> None:
        super().__init__(f"{where}: {result.detail}")
        self.result = Result(result.status, str(self))


def attempt(prove: Callable[[], Result]) -> Result:
    """The result of a proof that may end with NotProvedError."""
    try:
        return prove()
    except NotProvedError as stopped:
        return stopped.result


def obligations() -> list[Obligation]:
    """Those that depend on no model: invariants of operations, the kernels of every target, error bounds.

    The axioms of passes are in rules.py.
    """
    from unsay.compiler.verify import invariants, kernels

    return [*invariants.invariants_obligations(), *kernels.obligations()]


def all_of(results: Iterable[Result]) -> Result:
    """One result for several: the first that is not proved, which ends it, else proved with their number."""
    count = 0
    for result in results:
        if result.status is not Status.PROVED:
            return result
        count += 1
    return Result(Status.PROVED, f"{count} claims")


def named(results: Mapping[str, Result]) -> Result:
    """The same for results with names."""
    for name, result in results.items():
        if result.status is not Status.PROVED:
            return Result(result.status, f"{name}: {result.detail}")
    return Result(Status.PROVED, f"{len(results)} claims")
