"""A step of two programs is proved as a whole, and what is listed as not proved is what no proof has looked at."""

from __future__ import annotations

import re

import pytest

from tests.compiler.shapes import TINY, tensor_types
from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.lower import lower
from unsay.compiler.lower.fast import fast_program
from unsay.compiler.models import build_graph
from unsay.compiler.passes import run_passes
from unsay.compiler.verify.kernels import step_claims
from unsay.compiler.verify.kernels.bounds import prove_step
from unsay.compiler.verify.kernels.coverage import gaps
from unsay.compiler.verify.kernels.machine import Machine
from unsay.compiler.verify.kernels.scan import prove_scan
from unsay.compiler.verify.obligation import Result, Status, attempt
from unsay.isa.formats import DType
from unsay.isa.targets import find_target

SPEC = TINY._replace(num_layers=3, num_heads=1, num_kv_heads=1, context_length=300)
UNIT = dot_unit(find_target("avx2"))
_COMPUTED = ("tile_q", "pair_q", "notes_q", "merge_states")
WAITING = ["await_change", "barrier", "close", "deal", "futex", "interrupted", "pause", "run", "wake", "worker"]


@pytest.fixture(scope="module")
def step() -> Step:
    exact = lower(run_passes(build_graph(SPEC, tensor_types(SPEC), 48, 8)), SPEC, 48, 8)
    fast = fast_program(exact, DType.Q16)
    return Step(exact.program, SPEC, 48, 8, 4, fast.arena_bytes, fast.program)


@pytest.fixture(scope="module")
def text(step: Step) -> str:
    return step_text(step, UNIT)


def test_every_function_that_a_proof_executes_is_followed_and_no_other(
    step: Step, text: str, monkeypatch: pytest.MonkeyPatch
):
    executed: set[str] = set()
    run = Machine.run

    def noted(self: Machine, name: str, *arguments):
        executed.add(name)
        return run(self, name, *arguments)

    monkeypatch.setattr(Machine, "run", noted)
    monkeypatch.setattr(Machine, "implied", lambda *_: Result(Status.PROVED))  # whether it is, other tests ask
    prove_step(step, UNIT, text)
    prove_scan(text)
    defined = set(re.findall(r"^define .*?@([\w.]+)\(", text, re.MULTILINE))
    computation, anything = gaps(text)
    assert set(anything.functions) == defined - executed
    assert list(anything.functions) == WAITING and computation.of == anything.of == len(defined)


def test_the_calls_of_both_programs_are_looked_at(step: Step, text: str):
    result = attempt(lambda: prove_step(step, UNIT, text, "rms_norm"))
    assert result.status is Status.PROVED and result.detail.startswith("3 kernels"), result


def test_of_tiles_and_merges_nothing_is_open(step: Step, text: str):
    computation, _ = gaps(text)
    assert not [name for name in computation.functions if name.startswith(_COMPUTED)]
    assert {"step", "exact_step", "fast_step", "softmax_part", "survey", "race"} <= set(computation.functions)
    assert any(name.startswith("whole_tile") for name in computation.functions)
    claims = step_claims(step, "avx2")
    tiles = set(re.findall(r"^define .*?@((?:tile|pair)_q\w+)\(", text, re.MULTILINE))
    assert len([claim for claim in claims.obligations if claim.name.startswith(("tile", "pair"))]) == len(tiles)
    assert [claim.name for claim in claims.obligations][-1] == "the emitted merge, 1 x 32"
    assert claims.obligations[-1].prove().status is Status.PROVED and claims.gaps == gaps(text)


def test_memory_is_claimed_of_both_programs(step: Step):
    results = {claim.name: claim.prove for claim in step_claims(step, "avx2").obligations if "no write" in claim.name}
    assert list(results) == ["no write over what is still read", "fast: no write over what is read"]
    assert [prove().status for prove in results.values()] == [Status.PROVED] * 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"call i32 @fast_step", "call i32 @exact_step"),
        (r"(define internal i32 @fast_step(?s:.*?))  call void @rms_norm[^\n]*\n", r"\1"),
        (r"(define internal i32 @fast_step(?s:.*?getelementptr i8, ptr %v4, i64)) \d+(?=\n.*\n  call void)", r"\1 64"),
    ],
    ids=["exact twice", "no norm", "memory of another"],
)  # fmt: skip
def test_an_edit_of_the_fast_body_is_refuted(step: Step, text: str, old: str, new: str):
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    result = attempt(lambda: prove_step(step, UNIT, changed, "none of them"))
    assert result.status is Status.REFUTED, result
