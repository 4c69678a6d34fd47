"""What an extension is: operations and passes, and the semantic baseline they were made for.

The baseline is what operations mean and what an extension may use to say what its own mean: the rows of dialect/ops.py,
the methods of `Domain`, the fields of `Op` and of the classes here. It has a version MAJOR.MINOR:

    MINOR goes up when something is added: what was made for 1.2 works with 1.3
    MAJOR goes up when something is changed or taken away: what was made for 1.x is not used with 2.0

tests/compiler/extension/baseline.txt pins it: a test fails when the baseline has changed and its version has not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from unsay.compiler.dialect.meaning import Meaning
from unsay.compiler.dialect.op import Op
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.pipeline import Pass
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.scopes import Scope
from unsay.errors import RequestError

Fallback: TypeAlias = Callable[[Graph, Operation], Sequence[Value]]
"""Adds operations of the baseline before an operation and gives values equal to its results."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """MAJOR.MINOR of the baseline."""

    major: int
    minor: int

    @staticmethod
    def parse(text: str) -> Version:
        """Reads "1.2"; raises RequestError."""
        match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,4})", text)
        if match is None:
            raise RequestError(f"a baseline version is MAJOR.MINOR, as in {BASELINE}, got {text!r}")
        return Version(int(match[1]), int(match[2]))

    def serves(self, wanted: Version) -> bool:
        """Whether what was made for another version works with this one."""
        return self.major == wanted.major and self.minor >= wanted.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


BASELINE = Version(1, 1)


@dataclass(frozen=True, slots=True)
class OpExtension:
    """An operation named `vendor.name`: its row (family tensor), what it means, and graphs that show it at work.

    `examples` are LLMIR texts; the suite runs them at random inputs. `fallback` says the same in operations of the
    baseline: it stands in where the operation itself cannot be used, and is how a graph with it is lowered.
    """

    row: Op
    meaning: Meaning
    examples: tuple[str, ...]
    fallback: Fallback | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """An equation a pass relies on, and the sizes at which it is proved (verify/axioms.py, verify/scopes.py)."""

    axiom: Axiom
    scopes: tuple[Scope, ...]


@dataclass(frozen=True, slots=True)
class PassExtension:
    """A pass, the equations it relies on, and LLMIR texts it applies to.

    `fallback` runs in its place: on every graph if the pass does not keep the contract, else on those where it is not
    proved.
    """

    step: Pass
    rules: tuple[Rule, ...]
    cases: tuple[str, ...]
    fallback: Pass | None = None


@dataclass(frozen=True, slots=True)
class Extension:
    """What one vendor adds. `baseline` is the version it was made for, "1.0"."""

    name: str
    baseline: str
    ops: tuple[OpExtension, ...] = ()
    passes: tuple[PassExtension, ...] = ()
