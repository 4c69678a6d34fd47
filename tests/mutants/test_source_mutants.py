"""A wrong pass is never believed: what it does wrong is refused on the graph where it does it.

A changed source may still be right (it applies less often, or writes the same). So an outside judge evaluates what the
changed and the real pass made of each graph; where they differ, legality or T1 must have refused the changed one.
"""

import random
import signal
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from tests.compiler.passes.cases import cases
from tests.compiler.shapes import TINY_QWEN2, tensor_types
from tests.mutants.judge import same_outputs
from tests.mutants.source_mutants import WrongPass, wrong_passes
from tests.mutants.test_pass_mutants import legal_level, verdict
from tests.seen import seen
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import BY_NAME, PIPELINE, Pass
from unsay.compiler.verify.spec import Level

_MODEL = TINY_QWEN2._replace(num_layers=1)
_EACH, _LIMIT_S = 2, 0.2
_STEPS = [step for name, step in BY_NAME.items() if name not in ("dce", "schedule", "plan_memory")]
"""Passes that rewrite values: dce only removes what is not seen, the others write remarks that are checked apart."""


class Trial(NamedTuple):
    """A graph of a level, what the real pass makes of it, and the level that must be (None: well formed)."""

    graph: Graph
    level: Level
    real: Graph
    legal: Level | None


def trials(step: Pass) -> list[Trial]:
    """Its cases, and a model where it is of the step's pipeline; the real pass is right on all."""
    found = [
        (seen(parse(case.before)), step.entry or Level.TENSOR, legal_level(step))
        for case in cases()
        if case.name == step.name
    ]
    if step in PIPELINE:
        graph, level = build_graph(_MODEL, tensor_types(_MODEL), 8, 2), Level.SEMANTIC
        for earlier in PIPELINE[: PIPELINE.index(step)]:
            earlier.run(graph)
            level = earlier.exit or level
        found.append((graph, level, step.exit or level))
    return [_trial(step, *given) for given in found]


def _trial(step: Pass, graph: Graph, level: Level, legal: Level | None) -> Trial:
    real = graph.copy()
    step.run(real)
    assert verdict(graph, level, real, step, legal) == "survives", "the pass itself is right"
    return Trial(graph, level, real, legal)


def _run(changed: Pass, graph: Graph) -> str:
    """How the changed pass ends: "done", "crashes", or "endless" if it rewrites without end."""

    def stop(_signal: int, _frame: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _LIMIT_S)
    try:
        changed.run(graph)
    except TimeoutError:
        return "endless"
    except Exception:  # noqa: BLE001 - a crash is one way to be found out
        return "crashes"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    return "done"


def outcomes(step: Pass, wrong: WrongPass, tried: Iterable[Trial]) -> Iterator[str]:
    """Of each graph: crashes, endless, legality, T1, right; or survives, which is wrong and believed."""
    try:
        changed = Pass(wrong.load(step), step.entry, step.exit)
    except Exception:  # noqa: BLE001 - so is a file that cannot be imported
        yield "crashes"
        return
    for trial in tried:
        other = trial.graph.copy()
        found = _run(changed, other)
        if found == "done":
            found = verdict(trial.graph, trial.level, other, changed, trial.legal)
        if found == "survives" and same_outputs(trial.real, other, step.name):
            found = "right"
        yield found
        if found == "endless":
            return


@pytest.mark.parametrize("step", _STEPS, ids=lambda step: step.name)
def test_a_wrong_pass_is_refused_wherever_it_is_wrong(step: Pass):
    every = list(wrong_passes(step))
    drawn = random.Random(step.name).sample(every, min(_EACH, len(every)))
    tried = trials(step)
    believed = [f"{wrong.name}, line {wrong.line}" for wrong in drawn if "survives" in outcomes(step, wrong, tried)]
    assert believed == []
