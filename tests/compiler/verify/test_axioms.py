"""T2 and T3 of every axiom; the axioms as they stand have a model; each is of use."""

from collections.abc import Iterator

import numpy as np
import pytest

from tests.compiler.passes.cases import Case, cases
from tests.compiler.shapes import TINY, TINY_QWEN2, tensor_types
from tests.seen import seen
from unsay.compiler.dialect.domains import FIELD
from unsay.compiler.ir.parser import parse
from unsay.compiler.models import build_graph
from unsay.compiler.passes.pipeline import BY_NAME as PASSES
from unsay.compiler.passes.pipeline import PIPELINE
from unsay.compiler.verify import rules
from unsay.compiler.verify.axioms import AXIOMS, BY_NAME, BY_PASS, Axiom
from unsay.compiler.verify.congruence import Congruence
from unsay.compiler.verify.identity import find_difference
from unsay.compiler.verify.obligation import Obligation, Status
from unsay.compiler.verify.rewrite import Rewriter
from unsay.compiler.verify.scopes import SCOPES, T3_EXEMPT
from unsay.compiler.verify.small_scope import prove, sides_at
from unsay.compiler.verify.spec import Level
from unsay.compiler.verify.terms import Terms, meaning
from unsay.compiler.verify.validate import Validator


@pytest.mark.parametrize(
    "obligation", rules.obligations(), ids=lambda obligation: f"{obligation.name} {obligation.tier}"
)
def test_every_axiom_is_proved(obligation: Obligation):
    result = obligation.prove()
    assert result.status is Status.PROVED, result.detail


def test_every_axiom_that_is_no_definition_has_scopes():
    assert SCOPES.keys() == {axiom.name for axiom in AXIOMS if axiom.keeps != "nothing"}
    assert SCOPES.keys() > T3_EXEMPT


def test_every_axiom_serves_a_pass_and_every_pass_names_axioms_there_are():
    used = {name for names in BY_PASS.values() for name in names}
    assert used == BY_NAME.keys()
    assert BY_PASS.keys() <= PASSES.keys()


@pytest.mark.parametrize("case", [case for case in cases() if case.name != "dce"], ids=str)
def test_every_case_of_a_pass_is_proved(case: Case):
    step, graph = PASSES[case.name], seen(parse(case.before))
    validator = Validator(graph, step.entry or Level.TENSOR)
    count = step.run(graph)
    validator.after_pass(step, graph, count)
    (proof,) = validator.proofs
    assert proof.status == "proved"


def _instances() -> Iterator[tuple[Terms, Rewriter]]:
    """What the passes of the pipeline use on two models, all axioms but definitions at once."""
    for spec in (TINY._replace(num_layers=1), TINY_QWEN2._replace(num_layers=1)):
        graph, terms = build_graph(spec, tensor_types(spec), 32, 4), Terms()
        names = {name for step in PIPELINE for name in BY_PASS.get(step.name, ())}
        rewriter = Rewriter(
            terms, graph.dims, [axiom for axiom in AXIOMS if axiom.name in names and axiom.keeps != "nothing"]
        )
        for step in PIPELINE:
            step.run(graph)
            for term in meaning(terms, graph, step.exit or Level.FUSED).observations.values():
                rewriter.normal(term)
        yield terms, rewriter


def test_the_axioms_together_do_not_make_everything_equal():
    """Satisfiable with two weights apart: from a contradiction any equation would follow."""
    for terms, rewriter in _instances():
        assert len({step.axiom.name for step in rewriter.instances}) > 5
        weights = [term for term in terms.all if term.kind == "weight"]
        given = [(step.left, step.right) for step in rewriter.instances]
        assert Congruence().decide([(weights[0], weights[1])], given).status is Status.REFUTED


def test_the_field_is_a_model_of_the_axioms():
    """At one size all axioms hold there, and it has more than one element."""
    checked = 0
    for axiom in AXIOMS:
        if axiom.keeps == "nothing" or axiom.name in T3_EXEMPT:
            continue
        scope = SCOPES[axiom.name][0]
        sides = sides_at(axiom, scope, next(scope.small_sizes()))
        assert find_difference(sides.left, sides.right, seed=3) is None, axiom.name
        checked += 1
    assert checked > 50
    one, two = FIELD.lift(np.asarray([1.0, 2.0]))
    assert one != two


def test_a_wrong_axiom_is_refuted_with_the_values_that_show_it():
    wrong = Axiom("linear-add", "linear_add(r, x, w, *b) == add(x, linear(r, w, *b))")
    result = prove(wrong)
    assert result.status is Status.REFUTED
    assert "at T = 1" in result.detail and "r[0,0] = " in result.detail
