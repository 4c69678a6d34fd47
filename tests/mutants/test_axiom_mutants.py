"""Every axiom has wrong versions of itself, and each is refused: by types, by T3 at a small size, or by T2."""

import pytest

from tests.mutants.axiom_mutants import WrongRight, wrong_rights
from unsay.compiler.verify.axioms import AXIOMS, Axiom
from unsay.compiler.verify.equations import Builder
from unsay.compiler.verify.identity import find_difference
from unsay.compiler.verify.obligation import Status
from unsay.compiler.verify.patterns import parse_pattern
from unsay.compiler.verify.scopes import SCOPES, Scope
from unsay.compiler.verify.small_scope import prove_equal
from unsay.compiler.verify.terms import Terms
from unsay.errors import IrError

_WITH_MUTANTS = [axiom for axiom in AXIOMS if axiom.keeps != "nothing" and axiom.computed is None]


def refuted(axiom: Axiom, wrong: WrongRight) -> str | None:
    """ "types", "T3" or "T2"; None if every size of every scope agrees with the wrong right side."""
    for scope in SCOPES[axiom.name]:
        for sizes in reversed(list(scope.small_sizes())):
            if verdict := _refuted_at(axiom, wrong, scope, sizes):
                return verdict
    return None


def _refuted_at(axiom: Axiom, wrong: WrongRight, scope: Scope, sizes: dict[str, int]) -> str | None:
    terms = Terms()
    builder = Builder(terms, {})
    pattern = parse_pattern(scope.left) if scope.left else axiom.equation.left
    left = builder.build(pattern, scope.bind(terms, sizes))
    found = axiom.equation.match(left)
    assert found is not None, (axiom.name, sizes)
    try:
        right = builder.build(wrong.right, found)
    except (IrError, AttributeError, KeyError, TypeError, AssertionError):
        return "types"
    if right.type != left.type:
        return "types"
    if find_difference(left, right) is not None:
        return "T3"
    return None if prove_equal(left, right).status is Status.PROVED else "T2"


@pytest.mark.parametrize("axiom", _WITH_MUTANTS, ids=lambda axiom: axiom.name)
def test_wrong_versions_of_an_axiom_are_refused(axiom: Axiom):
    survivors = [wrong.name for wrong in wrong_rights(axiom) if refuted(axiom, wrong) is None]
    assert survivors == []


def test_there_are_more_than_four_hundred():
    assert sum(len(list(wrong_rights(axiom))) for axiom in _WITH_MUTANTS) > 400
