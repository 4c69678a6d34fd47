"""The tables of the compiler with the rows of extensions in them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

from unsay.compiler.dialect import ops, semantics
from unsay.compiler.extension.contract import Fallback, OpExtension, PassExtension
from unsay.compiler.ir.core import Graph
from unsay.compiler.passes import pipeline
from unsay.compiler.passes.pipeline import Pass
from unsay.compiler.verify import axioms, scopes
from unsay.compiler.verify.validate import run_validated
from unsay.errors import PassError

Row = tuple[MutableMapping[str, Any], str, Any]
"""A table, a key and what is under it."""


def rows_of_op(op: OpExtension) -> list[Row]:
    """What an operation adds."""
    return [(ops.BY_NAME, op.row.name, op.row), (semantics.SEMANTICS, op.row.name, op.meaning)]


def rows_of_pass(extension: PassExtension) -> list[Row]:
    """What a pass adds: itself, its equations, and that it alone, with those of its fallback, may use them."""
    rows: list[Row] = [(pipeline.BY_NAME, extension.step.name, extension.step)]
    for rule in extension.rules:
        rows += [(axioms.BY_NAME, rule.axiom.name, rule.axiom), (scopes.SCOPES, rule.axiom.name, rule.scopes)]
    names = tuple(rule.axiom.name for rule in extension.rules)
    return [*rows, (axioms.BY_PASS, extension.step.name, names)]


def rows_of_guarded(extension: PassExtension, fallback: Pass) -> list[Row]:
    """The same with a pass that runs its fallback on graphs where it is not proved itself."""

    @wraps(extension.step.run)
    def run(graph: Graph) -> int:
        try:
            run_validated(graph.copy(), [extension.step])
        except PassError:
            return fallback.run(graph)
        return extension.step.run(graph)

    *rows, (table, name, own) = rows_of_pass(extension)
    rows[0] = (pipeline.BY_NAME, name, replace(extension.step, run=run))
    return [*rows, (table, name, (*own, *axioms.BY_PASS.get(fallback.name, ())))]


def enter(rows: Sequence[Row]) -> None:
    """Add rows to their tables; none may be there."""
    for table, name, row in rows:
        assert name not in table, name
        table[name] = row


def remove(rows: Sequence[Row]) -> None:
    """Take them out again."""
    for table, name, _ in rows:
        del table[name]


@contextmanager
def entered(rows: Sequence[Row]) -> Generator[None]:
    """The tables with some rows more, for a while."""
    enter(rows)
    try:
        yield
    finally:
        remove(rows)


def taken(rows: Sequence[Row]) -> list[str]:
    """Names that are in their tables already, or twice among the rows."""
    keys = [(id(table), name) for table, name, _ in rows]
    return sorted({name for table, name, _ in rows if name in table or keys.count((id(table), name)) > 1})


def expand_with(graph: Graph, fallbacks: Mapping[str, Fallback]) -> int:
    """op(x, ..) -> its fallback, for every operation that has one; the number of operations."""
    found = [operation for operation in graph.operations if operation.kind in fallbacks]
    for operation in found:
        graph.substitute(operation, fallbacks[operation.kind](graph, operation))
    return len(found)
