"""Checks of a pass of an extension, run with its rows in the tables: what is wrong, or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from unsay.compiler.dialect.domains import FIELD, FLOAT
from unsay.compiler.extension.contract import PassExtension
from unsay.compiler.extension.samples import at_some_sizes, close, inputs_of
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.passes.pipeline import run_passes
from unsay.compiler.verify import identity, small_scope
from unsay.compiler.verify.obligation import Status
from unsay.compiler.verify.spec import Level
from unsay.compiler.verify.validate import Validator

Check: TypeAlias = Callable[[PassExtension], str | None]

_MOST_RUNS = 8


def applies_to_its_cases(extension: PassExtension) -> str | None:
    """It changes every case, leaves it legal, and after some runs has nothing more to do."""
    if not extension.cases:
        return "it needs a case, an LLMIR text it applies to"
    for graph in map(parse, extension.cases):
        if not _count(extension, graph):
            return f"it does not apply to the case {graph.name}"
        if all(_count(extension, graph) for _ in range(_MOST_RUNS)):
            return f"it still applies to the case {graph.name} after {_MOST_RUNS} runs"
    return None


def _count(extension: PassExtension, graph: Graph) -> int:
    counts: list[int] = []
    run_passes(graph, [extension.step], lambda _step, _graph, count: counts.append(count))
    return counts[0]


def has_proved_equations(extension: PassExtension) -> str | None:
    """Each equation holds at every small size for all reals (T2), and at real sizes in the field (T3)."""
    for rule in extension.rules:
        if not rule.scopes:
            return f"{rule.axiom.name} has no scope to be proved at"
        for tier, prove in (("T2", small_scope.prove), ("T3", identity.check_axiom)):
            result = prove(rule.axiom)
            if result.status is not Status.PROVED:
                return f"{rule.axiom.name} is {result.status.value} by {tier}: {result.detail}"
    return None


def is_validated(extension: PassExtension) -> str | None:
    """T1 accepts it on every case, by its own equations alone; raises PassError with the counterexample if not."""
    for graph in map(parse, extension.cases):
        validator = Validator(graph, extension.step.entry or Level.TENSOR)
        run_passes(graph, [extension.step], validator.after_pass)
    return None


def keeps_the_results(extension: PassExtension) -> str | None:
    """Graphs before and after give the same, exactly in the field and closely in floats."""
    for graph in map(parse, extension.cases):
        after = graph.copy()
        extension.step.run(after)
        for domain in (FLOAT, FIELD):
            given = inputs_of(at_some_sizes(graph), domain, seed=2)
            if not all(map(close, *(evaluate(each, *given, domain) for each in (graph, after)))):
                return f"it changes the results of the case {graph.name}, over {type(domain).__name__}"
    return None


CHECKS: tuple[Check, ...] = (applies_to_its_cases, has_proved_equations, is_validated, keeps_the_results)
