"""No wrong graph gets past the checks after a pass: what its level allows (spec.py), and T1 (validate.py)."""

import random

import pytest

from tests.compiler.passes.cases import Case, cases
from tests.compiler.shapes import TINY, TINY_QWEN2, tensor_types
from tests.mutants.graph_mutants import Mutant, mutants
from tests.seen import seen
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import BY_NAME, PIPELINE, Pass
from unsay.compiler.verify.spec import Level, check
from unsay.compiler.verify.validate import Validator
from unsay.errors import IrError, PassError

_EACH_MODEL, _EACH_CASE = 3, 3
"""Mutants drawn for each pass and model, and for each case of tests/ir: always the same ones."""

_MODELS = [TINY._replace(num_layers=1), TINY_QWEN2]
_CASES = [case for case in cases() if case.after != case.before and case.name != "dce"]


def verdict(before: Graph, level: Level, after: Graph, step: Pass, legal: Level | None = None) -> str:
    """ "legality", "T1" or "survives"; legal: the level the graph must be of, None if it need only be well formed."""
    try:
        verify(after) if legal is None else check(after, legal)
    except (IrError, AssertionError, TypeError, IndexError, ValueError):
        return "legality"
    try:
        Validator(before, level).after_pass(step, after, 1)
    except PassError:
        return "T1"
    return "survives"


def legal_level(step: Pass) -> Level | None:
    """What a case of tests/ir must be after its pass: those of a step are no whole steps."""
    return step.exit if step.exit in (Level.TENSOR, Level.PLACED) else None


def _survivors(
    before: Graph, level: Level, after: Graph, step: Pass, drawn: list[Mutant], legal: Level | None = None
) -> list[str]:
    assert verdict(before, level, after, step, legal) == "survives", "the pass itself is right"
    found: list[str] = []
    for mutant in drawn:
        wrong = after.copy()
        mutant.apply(wrong)
        if verdict(before, level, wrong, step, legal) == "survives":
            found.append(mutant.name)
    return found


def draw(graph: Graph, count: int, seed: str) -> list[Mutant]:
    """Some of the mutants of a graph."""
    every = list(mutants(graph))
    return random.Random(seed).sample(every, min(count, len(every)))


@pytest.mark.parametrize("spec", _MODELS, ids=lambda spec: spec.architecture)
@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
def test_mutants_of_a_model_after_a_pass_are_killed(step: Pass, spec):
    before, level = build_graph(spec, tensor_types(spec), 32, 4), Level.SEMANTIC
    for earlier in PIPELINE[: PIPELINE.index(step)]:
        earlier.run(before)
        level = earlier.exit or level
    after = before.copy()
    step.run(after)
    drawn = draw(after, _EACH_MODEL, f"{step.name} {spec.architecture}")
    assert len(drawn) == _EACH_MODEL
    assert _survivors(before, level, after, step, drawn, step.exit or level) == []


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_mutants_of_what_a_pass_is_to_give_are_killed(case: Case):
    step = BY_NAME[case.name]
    before = seen(parse(case.before))
    level = step.entry or Level.TENSOR
    after = before.copy()
    step.run(after)
    assert _survivors(before, level, after, step, draw(after, _EACH_CASE, str(case)), legal_level(step)) == []


def test_there_are_more_than_two_hundred():
    in_cases = sum(min(_EACH_CASE, len(list(mutants(seen(parse(case.after)))))) for case in _CASES)
    assert 2 * len(PIPELINE) * _EACH_MODEL + in_cases > 200
