"""Mutants of a step: how its threads share the units of a product, and which kernels its body calls.

A mutant of the first kind computes a unit that there is not, or asks for units of a thread that there is not. What has
two threads compute the same unit, or none of them, stays inside all memory and is proved: see docs/verification.md.
"""

from __future__ import annotations

import re

import pytest

from tests.compiler.codegen.test_turns import SPEC, UNIT, compiled
from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.verify.kernels.bounds import prove_step
from unsay.compiler.verify.obligation import Result, Status, attempt

_PRODUCT = r"define internal void @matmul_q4_1_64x64"
_ALONE, _CHUNKS = _PRODUCT, rf"(?s:{_PRODUCT}.*?)turn6.body:"
"""Where a product of one token begins, and where threads get the units of one of many tokens."""


@pytest.fixture(scope="module")
def step() -> Step:
    return compiled()


@pytest.fixture(scope="module")
def text(step: Step) -> str:
    return step_text(step, UNIT)


def _of_mutant(step: Step, text: str, start: str, old: str, new: str, only: str) -> Result:
    """The proof with the first `old` behind `start` changed."""
    begin = re.search(start, text)
    assert begin is not None
    changed = text[: begin.start()] + re.sub(old, new, text[begin.start() :], count=1)
    assert changed != text
    return attempt(lambda: prove_step(step, UNIT, changed, only))


@pytest.mark.parametrize(
    ("start", "old", "new", "says"),
    [
        (_CHUNKS, r"icmp slt (i64 %\w+, %\w+\n  br i1 %\w+, label %if4)", r"icmp sle \1", "weights"),
        (_ALONE, r"sub (i64 %\w+, %\w+\n  %\w+ = icmp slt)", r"add \1", "weights"),
        (_ALONE, r"urem i64 (%\w+), %threads", r"add i64 \1, 0", "units of no thread"),
        (_ALONE, r"(@deal\(ptr %args, i64 )%\w+", r"\1%threads", "units of no thread"),
        (_CHUNKS, r"mul i64 4, (%\w+\n  %\w+ = udiv i64 %\w+, %threads\n  %\w+ = zext)", r"mul i64 5, \1", "weights"),
        (_ALONE, r"(if2.then:\n  %\w+ = add i64) %\w+", r"\1 %threads", "weights"),
        (_ALONE, r"select i1 (%\w+), i64 (%\w+), i64 3\b", r"select i1 \1, i64 \2, i64 4", "weights"),
    ],
    ids=["one more", "sum of ends", "no modulus", "another owner", "end of more", "another begin", "second"],
)  # fmt: skip
def test_a_thread_that_takes_a_unit_there_is_not_is_refuted(
    step: Step, text: str, start: str, old: str, new: str, says: str
):  # fmt: skip
    result = _of_mutant(step, text, start, old, new, "matmul_q4_1_64x64")
    assert result.status is Status.REFUTED and says in result.detail, result


def test_units_that_two_threads_compute_are_proved_all_the_same(step: Step, text: str):
    result = _of_mutant(step, text, _PRODUCT, r"(@deal\(ptr %args, i64 %\w+, i64) 1", r"\1 0", "matmul_q4_1_64x64")
    assert result.status is Status.PROVED, "a claim about threads that docs/verification.md does not know of"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (r"icmp slt i64 %turn1\.head\.i, 3", "icmp slt i64 %turn1.head.i, 2", "no call in front of"),
        (r"icmp slt i64 %turn1\.head\.i, 3", "icmp slt i64 %turn1.head.i, 4", ""),
        (r"(turn1\.head\.i = phi i64 \[) 0", r"\1 1", ""),
        (r"  call void @rms_norm[^\n]*\n", "", "(NORM): no call in front of"),
        (r"  call void @gate_up[^\n]*\n(?s:.*?)  call void @matmul[^\n]*\n", "", "(FFN): no call in front of"),
        (r"(mul i64 %turn1\.head\.i), (\d+)", r"\1, 64", "which it does not name"),
    ],
    ids=["a turn less", "a turn more", "the first turn left out", "no norm", "no FFN", "another stride"],
)  # fmt: skip
def test_a_body_that_does_not_run_the_program_is_refuted(step: Step, text: str, old: str, new: str, says: str):
    result = _of_mutant(step, text, r"turn1\.head:", old, new, "none of them")
    assert result.status is not Status.PROVED and says in result.detail, result


def test_so_is_one_that_leaves_its_last_instruction_out(step: Step, text: str):
    result = _of_mutant(
        step, text, "define i32 @step", r"(?:  call void @look_[^\n]*\n(?s:.*?)){3}  ret", "  ret", "none"
    )
    assert SPEC.num_layers == 4 and result.status is Status.REFUTED, result
