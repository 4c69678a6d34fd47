"""What Z3 may use for a question is counted, not timed."""

from __future__ import annotations

import pytest

from unsay.compiler.verify import smt
from unsay.compiler.verify.obligation import Status
from unsay.compiler.verify.smt import decide, z3

A, B, C = z3.BitVecs("a b c", 32)
HARD = z3.Not(z3.And(A * B == 6442450943, A * C - B * B == 12345, z3.ULT(1, A), A * A * B == C * B + 7))


def test_a_question_that_needs_more_is_unknown_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smt, "RESOURCES", 1000)
    answers = [decide(HARD) for _ in range(2)]
    assert {answer.status for answer in answers} == {Status.UNKNOWN}
    assert {answer.detail for answer in answers} == {"max. resource limit exceeded"}


def test_what_one_question_used_is_not_taken_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smt, "RESOURCES", 1000)
    decide(HARD)
    assert decide(A == A).status is Status.PROVED
    assert decide(A == B).status is Status.REFUTED
