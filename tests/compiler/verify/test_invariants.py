"""Every value invariant of the table is proved or checked; a checked evaluation stops at a broken one."""

import numpy as np
import pytest

from unsay.compiler.dialect.ops import OPS
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.verify.invariants import CHECKED, SETTLED, invariants_obligations
from unsay.compiler.verify.obligation import Status
from unsay.errors import InvariantError

GRAPH = """graph g(T: 1..8) {
  %x = input() {name = "x"} : tensor<T x 4 x f32>
  %y = softmax(%x) {axis = 1} : tensor<T x 4 x f32>
  output(%y)
}
"""


def test_every_invariant_of_the_table_is_settled_once():
    given = [(op.name, invariant) for op in OPS for invariant in op.value_invariants]
    settled = [(name, row.invariant) for row in SETTLED for name in row.operations]
    assert sorted(settled) == sorted(given)


@pytest.mark.parametrize("obligation", invariants_obligations(), ids=lambda obligation: obligation.name)
def test_an_invariant_with_a_proof_is_proved(obligation):
    assert obligation.prove().status is Status.PROVED


def test_what_is_not_proved_says_that_it_is_checked():
    assert all((row.prove is None) == (row.method == CHECKED) for row in SETTLED)


def test_a_checked_evaluation_is_an_evaluation(monkeypatch: pytest.MonkeyPatch):
    x = {"x": np.array([[1.0, 2.0, -3.0, 0.5]], np.float32)}
    graph = parse(GRAPH)
    assert np.array_equal(*(evaluate(graph, x, {}, checked=checked)[0] for checked in (True, False)))
    right = SEMANTICS["softmax"]
    monkeypatch.setitem(SEMANTICS, "softmax", lambda *a: tuple(y * np.float32(1.5) for y in right(*a)))
    evaluate(graph, x, {})
    with pytest.raises(InvariantError, match=r"%y = softmax\(\.\.\.\) at 3:\d+ breaks sum\(y, axis\) == 1"):
        evaluate(graph, x, {}, checked=True)


def test_a_row_without_an_unmasked_score_breaks_the_softmax():
    masked = {"x": np.full((1, 4), -np.inf, np.float32)}
    with pytest.raises(InvariantError, match="breaks"):
        evaluate(parse(GRAPH), masked, {}, checked=True)
