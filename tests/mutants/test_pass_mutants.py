"""No wrong graph gets past the checks after a pass: the pass's own level (spec.py) and T1 (validate.py)."""

import random

import pytest

from tests.compiler.shapes import TINY, TINY_QWEN2, tensor_types
from tests.mutants.graph_mutants import Mutant, mutants
from unsay.compiler.ir.core import Graph
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import PIPELINE, Pass
from unsay.compiler.verify.spec import Level, check
from unsay.compiler.verify.validate import Validator
from unsay.errors import IrError, PassError

_EACH = 22
"""Mutants drawn for each pass and model, always the same ones."""


def _start(spec) -> Graph:
    return build_graph(spec, tensor_types(spec), 32, 4)


def _before(spec, step: Pass) -> tuple[Graph, Level]:
    """The graph as the pass finds it."""
    graph, level = _start(spec), Level.SEMANTIC
    for earlier in PIPELINE[: PIPELINE.index(step)]:
        earlier.run(graph)
        level = earlier.exit or level
    return graph, step.entry or level


def _verdict(before: Graph, level: Level, after: Graph, step: Pass) -> str:
    """ "legality", "T1" or "survives"."""
    try:
        check(after, step.exit or level)
    except (IrError, AssertionError, TypeError):
        return "legality"
    try:
        Validator(before, level).after_pass(step, after, 1)
    except PassError:
        return "T1"
    return "survives"


def _drawn(graph: Graph, seed: str) -> list[Mutant]:
    every = list(mutants(graph))
    return random.Random(seed).sample(every, min(_EACH, len(every)))


@pytest.mark.parametrize("spec", [TINY, TINY_QWEN2], ids=lambda spec: spec.architecture)
@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
def test_every_mutant_of_the_graph_after_a_pass_is_killed(step: Pass, spec):
    before, level = _before(spec, step)
    after = before.copy()
    step.run(after)
    assert _verdict(before, level, after, step) == "survives", "the pass itself must pass"
    drawn = _drawn(after, f"{step.name} {spec.name}")
    assert len(drawn) == _EACH
    survivors = []
    for mutant in drawn:
        wrong = after.copy()
        mutant.apply(wrong)
        if _verdict(before, level, wrong, step) == "survives":
            survivors.append(mutant.name)
    assert survivors == []
