"""What was measured: for each work the figure of each contestant, or why there is none; kept in a JSON file."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of samples taken in turn with the others'. others: the largest share of the cores that other programs
    had during one of the samples, 0 to 1."""

    value: float
    samples: tuple[float, ...]
    others: float


def figure(samples: list[float], others: list[float]) -> Figure:
    """The median of at least one sample."""
    return Figure(statistics.median(samples), tuple(samples), max(others))


@dataclass(slots=True)
class Results:
    """figures and unable are keyed by work, then by contestant. notes: what else there is to say of a work. machine: on
    what, with what command."""

    machine: dict[str, Any] = field(default_factory=dict[str, Any])
    versions: dict[str, str] = field(default_factory=dict[str, str])
    figures: dict[str, dict[str, Figure]] = field(default_factory=dict[str, dict[str, Figure]])
    unable: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    notes: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def begin(self, work: str) -> None:
        """Forget what an earlier run had of this work."""
        for table in (self.figures, self.unable, self.notes):
            table.pop(work, None)

    def add(self, work: str, contestant: str, samples: list[float], others: list[float]) -> None:
        """A contestant's samples of a work, in its unit."""
        self.figures.setdefault(work, {})[contestant] = figure(samples, others)

    def refuse(self, work: str, contestant: str, reason: str) -> None:
        """There is no figure, and why."""
        self.unable.setdefault(work, {})[contestant] = reason

    def note(self, work: str, text: str) -> None:
        """Something to say below the table."""
        self.notes.setdefault(work, []).append(text)

    def to_json(self) -> str:
        """One object, indented."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Results:
        """What `to_json` wrote."""
        told = json.loads(text)
        told["figures"] = {
            work: {who: Figure(got["value"], tuple(got["samples"]), got["others"]) for who, got in by_name.items()}
            for work, by_name in told["figures"].items()
        }
        return cls(**told)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Of a file; empty if there is none yet."""
        return cls.from_json(path.read_text(encoding="utf-8")) if path.exists() else cls()
