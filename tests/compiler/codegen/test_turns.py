"""Layers that are alike are one loop of the step: the same bits, and every turn of it is looked at by the proof."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.compiler.codegen.steps import (
    CAPACITY,
    UNITS,
    StepBuilder,
    make_batch,
    random_pages,
    run_native,
    run_reference,
    tiny_spec,
)
from tests.compiler.shapes import TINY, tensor_types
from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.turns import straight, stretches
from unsay.compiler.lower import lower
from unsay.compiler.models import build_graph
from unsay.compiler.passes import run_passes
from unsay.compiler.verify.kernels.bounds import prove_step
from unsay.compiler.verify.obligation import Result, Status, attempt
from unsay.errors import ProgramError
from unsay.isa.formats import DType
from unsay.isa.program import Program, make

UNIT = UNITS["avx2"]
SPEC = TINY._replace(num_layers=4, num_heads=2, num_kv_heads=1, context_length=600)
LAYER = ["ATTN", "MATMUL", "NORM", "FFN", "NORM", "QKV"]


def hand_made(num_layers: int, odd: int = -1) -> StepBuilder:
    """NORM, QKV with a bias, ATTN, MATMUL in each layer. odd: a layer whose MATMUL has another format."""
    step = StepBuilder(np.random.default_rng(5), tiny_spec(num_layers=num_layers))
    step.activation(1, DType.F32, 96)
    step.activation(2, DType.Q8W, 96)
    step.activation(3, DType.F32, 256)
    step.activation(4, DType.Q8A, 128)
    step.table(5, 32)
    for layer in range(num_layers):
        step.vector(6, 96)
        step.matrix(7, DType.Q4_1, 256, 96)
        bias = step.vector(8, 256)
        step.matrix(9, DType.Q4_0 if layer == odd else DType.Q8_0, 96, 128)
        step.add("NORM", 2, 1, 6, eps=1e-5)
        step.add("QKV", 3, 2, 7, 5, num_heads=4, num_kv_heads=2, head_dim=32, bias=bias)
        step.add(
            "ATTN", 4, 3, 3, 3, layer=layer, num_heads=4, num_kv_heads=2, head_dim=32, scale=0.17677669, q_column=0,
            k_column=128, v_column=192,
        )  # fmt: skip
        step.add("MATMUL", 1, 4, 9, flags=("ACCUMULATE",))
    return step


def shape(program: Program) -> list[tuple[int, list[str]]]:
    """(turns, instructions) of each stretch."""
    return [(stretch.times, [work.instruction.row.name for work in stretch.works]) for stretch in stretches(program)]


def compiled(num_layers: int = SPEC.num_layers) -> Step:
    spec = SPEC._replace(num_layers=num_layers)
    lowered = lower(run_passes(build_graph(spec, tensor_types(spec), 48, 8)), spec, 48, 8)
    return Step(lowered.program, spec, max_tokens=48, max_rows=8, max_threads=4, scratch_offset=lowered.arena_bytes)


def test_the_layers_of_a_model_are_one_stretch_from_the_first_attention_to_the_last() -> None:
    before, first = [(1, ["STREAM"]), (1, ["NORM"]), (1, ["QKV"])], [(1, [name]) for name in LAYER[:4]]
    after = [(1, ["NORM"]), (1, ["MATMUL"]), (1, ["STREAM"])]
    assert shape(compiled().program) == [*before, (3, LAYER), *first, *after]
    assert (2, LAYER) in shape(compiled(3).program)
    assert all(times == 1 for times, _ in shape(compiled(2).program))


def test_a_layer_of_another_format_ends_a_stretch() -> None:
    names = ["NORM", "QKV", "ATTN", "MATMUL"]
    assert shape(hand_made(4).program) == [(4, names)]
    assert shape(hand_made(5, odd=2).program) == [(2, names), *((1, [name]) for name in names), (2, names)]


def test_a_register_without_a_tensor_is_refused_in_a_later_turn_too() -> None:
    step = hand_made(4)
    *others, last = step.program
    wrong = Program((*others, make("MATMUL", *last.registers[:3], 13, flags=("ACCUMULATE",))))
    with pytest.raises(ProgramError, match="R13 names no tensor"):
        step_text(Step(wrong, step.spec, CAPACITY, 4, 4, 1 << 20), UNIT)


def test_no_stretch_loses_an_instruction() -> None:
    for program in (compiled().program, hand_made(5, odd=2).program):
        expected = [stretch.works[0].instruction.row.name for stretch in straight(program)]
        found = [name for times, names in shape(program) for name in names * times]
        assert found == expected


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("num_tokens", [1, 2, CAPACITY])
def test_a_loop_of_layers_is_what_the_definition_says(num_tokens: int, num_threads: int) -> None:
    step = hand_made(4)
    batch = make_batch(list(range(100, 100 + num_tokens)))
    pages = random_pages(step.rng, step.spec, batch)
    assert "turn1.head" in step_text(Step(step.program, step.spec, CAPACITY, 4, 4, 1 << 20), UNIT)
    made = run_native(step, batch, pages, num_threads=num_threads)
    expected = run_reference(step, batch, pages)
    assert made is not None
    assert made.tensor(0, 96)[:num_tokens].tobytes() == expected.tensor(0, 96)[:num_tokens].tobytes()
    assert made.pages.tobytes() == expected.pages.tobytes()


def proved(step: Step, text: str) -> Result:
    return attempt(lambda: prove_step(step, UNIT, text, only="append"))


def test_every_turn_is_proved_and_another_stride_or_a_turn_more_is_refuted() -> None:
    step = compiled()
    text = step_text(step, UNIT)
    assert proved(step, text).status is Status.PROVED
    strides = sorted(set(re.findall(r"mul i64 %turn1\.head\.i, (\d+)", text)))
    assert len(strides) == 2, "weights and pages"
    for stride in strides:
        wrong = text.replace(f"mul i64 %turn1.head.i, {stride}", f"mul i64 %turn1.head.i, {int(stride) + 64}", 1)
        assert proved(step, wrong).status is Status.REFUTED
    wrong = text.replace("icmp slt i64 %turn1.head.i, 3", "icmp slt i64 %turn1.head.i, 4")
    assert wrong != text and proved(step, wrong).status is Status.REFUTED
