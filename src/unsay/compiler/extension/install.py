"""Puts an extension to use: what keeps the contract as it is, and what does not by its fallback."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.meaning import Meaning
from unsay.compiler.extension.conformance import fallback_problems, problems_of
from unsay.compiler.extension.contract import Extension, Fallback, OpExtension, PassExtension
from unsay.compiler.extension.tables import Row, enter, expand_with, remove, rows_of_guarded, rows_of_op, rows_of_pass
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.ir.evaluate import trace
from unsay.compiler.passes import pipeline
from unsay.errors import ExtensionError, RequestError


@dataclass(frozen=True, slots=True)
class Installed:
    """An extension in use. `replaced` are the parts whose fallback is used, with what is wrong with them."""

    extension: Extension
    replaced: dict[str, list[str]]
    rows: tuple[Row, ...]

    def remove(self) -> None:
        """Take it out again; graphs with its operations are then refused."""
        remove(self.rows)


def install(extension: Extension) -> Installed:
    """Validate an extension and enter it in the tables.

    A part that does not keep the contract is replaced by its fallback; raises ExtensionError if it has none. A pass
    that keeps it is replaced by its fallback on graphs where T1 does not prove it.
    """
    problems = problems_of(extension)
    replaced = {name: found for name, found in problems.items() if found}
    parts: dict[str, OpExtension | PassExtension] = {op.row.name: op for op in extension.ops}
    parts |= {part.step.name: part for part in extension.passes}
    fatal = [f"{name}: {text}" for name, found in replaced.items() if parts[name].fallback is None for text in found]
    fatal += [f"{name}: {text}" for name, text in fallback_problems(extension, replaced)]
    if fatal:
        raise ExtensionError(extension.name, fatal)
    rows = [row for name, part in parts.items() for row in _rows(part, name in replaced)]
    enter(rows)
    return Installed(extension, replaced, tuple(rows))


def load(module: str) -> Installed:
    """Install the `EXTENSION` of a Python module; raises RequestError where there is none."""
    try:
        extension = getattr(importlib.import_module(module), "EXTENSION", None)
    except ModuleNotFoundError as error:
        raise RequestError(f"no module {module!r} for an extension: {error}") from error
    if not isinstance(extension, Extension):
        raise RequestError(f"module {module} has no EXTENSION of unsay.compiler.extension, got {extension!r}")
    return install(extension)


def expand(graph: Graph, installed: Sequence[Installed]) -> int:
    """op(x, ..) -> its fallback, for every operation of these extensions that has one; the number of operations."""
    ops = [op for each in installed for op in each.extension.ops]
    return expand_with(graph, {op.row.name: op.fallback for op in ops if op.fallback is not None})


def _rows(part: OpExtension | PassExtension, is_replaced: bool) -> list[Row]:
    if isinstance(part, OpExtension):
        meaning = _through(part.fallback) if is_replaced and part.fallback else part.meaning
        return rows_of_op(replace(part, meaning=meaning))
    if part.fallback is None:
        return rows_of_pass(part)
    return [(pipeline.BY_NAME, part.step.name, part.fallback)] if is_replaced else rows_of_guarded(part, part.fallback)


def _through(fallback: Fallback) -> Meaning:
    """What an operation means by its fallback: that of a graph of it alone."""

    def meaning(domain: Domain, operation: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
        graph = Graph(operation.kind, ())
        inputs = [
            graph.add("input", (), {"name": str(place)}, [(f"x{place}", value.type)]).result
            for place, value in enumerate(operation.operands)
        ]
        results = [(value.name, value.type) for value in operation.results]
        twin = graph.add(operation.kind, inputs, operation.attributes, results)
        graph.add("output", twin.results)
        expand_with(graph, {operation.kind: fallback})
        given = {str(place): array for place, array in enumerate(operands)}
        *_, (_, made, _) = trace(graph, given, {}, domain)
        return tuple(made)

    return meaning
