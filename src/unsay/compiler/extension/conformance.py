"""The suite that an extension must pass before it is used.

Of an operation (op_checks.py): its row; that its shape rule gives types or an IrError for any operands; that its
meaning has the shapes of the rule, and is a function, over floats and over a field; that its invariants hold and refuse
something; that graphs with it print and parse; that its fallback is equal to it.
Of a pass (pass_checks.py): that it applies to its cases and comes to an end; that each of its equations is proved at
every small size and tested at real ones; that T1 accepts it on every case by those equations alone; that results stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeVar

from unsay.compiler.extension import op_checks, pass_checks
from unsay.compiler.extension.contract import BASELINE, Extension, Version
from unsay.compiler.extension.tables import Row, entered, rows_of_op, rows_of_pass, taken
from unsay.errors import UnsayError

_Part = TypeVar("_Part")

_FAULTS = (
    UnsayError, ArithmeticError, AssertionError, AttributeError, LookupError, NameError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip
"""What the code of an extension may raise for want of care."""


def problems_of(extension: Extension) -> dict[str, list[str]]:
    """What is wrong with each operation and pass, by its name: nothing, if the list is empty."""
    rows = {op.row.name: rows_of_op(op) for op in extension.ops}
    rows |= {part.step.name: rows_of_pass(part) for part in extension.passes}
    problems = {name: [*_of_name(extension, name), *_of_tables(own)] for name, own in rows.items()}
    if any(problems.values()):
        return problems
    with entered([row for own in rows.values() for row in own]):
        for op in extension.ops:
            problems[op.row.name] += _failed(op, op_checks.CHECKS)
        for part in extension.passes:
            problems[part.step.name] += _failed(part, pass_checks.CHECKS)
    return problems


def fallback_problems(extension: Extension, replaced: Container[str]) -> list[tuple[str, str]]:
    """What is wrong with the fallbacks of operations that are replaced: (name, problem)."""
    ops = [op for op in extension.ops if op.row.name in replaced and op.fallback is not None]
    rows = [row for op in ops for row in rows_of_op(op)]
    names = [(op.row.name, text) for op in ops for text in _of_tables(rows_of_op(op))]
    if names:
        return names
    with entered(rows):
        return [(op.row.name, text) for op in ops for text in _failed(op, op_checks.FALLBACK_CHECKS)]


def _of_name(extension: Extension, name: str) -> list[str]:
    """Its name and version."""
    found: list[str] = []
    wanted = Version.parse(extension.baseline)
    if not BASELINE.serves(wanted):
        found.append(f"it was made for baseline {wanted}, this is {BASELINE}")
    if not re.fullmatch(rf"{re.escape(extension.name)}[._][a-z][a-z0-9_]*", name):
        found.append(f"its name must begin with that of its extension, as in {extension.name}.name")
    return found


def _of_tables(rows: Sequence[Row]) -> list[str]:
    return [f"there is a {name} already" for name in taken(rows)]


def _failed(part: _Part, checks: Iterable[Callable[[_Part], str | None]]) -> list[str]:
    return [problem for check in checks if (problem := _outcome(part, check)) is not None]


def _outcome(part: _Part, check: Callable[[_Part], str | None]) -> str | None:
    """What is wrong, or what the extension raised."""
    try:
        return check(part)
    except _FAULTS as fault:
        return f"{check.__name__.replace('_', ' ')}: {type(fault).__name__}: {fault}"
