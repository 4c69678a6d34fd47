"""No instruction of a lowered program writes what is still read; programs with tensors moved are refuted."""

from dataclasses import replace

import pytest

from tests.compiler.shapes import SMOLLM2, TINY, TINY_QWEN2, tensor_types
from unsay.compiler.lower import Lowered, lower
from unsay.compiler.models import build_graph
from unsay.compiler.passes import run_passes
from unsay.compiler.passes.pipeline import PIPELINE, UNFUSED
from unsay.compiler.verify.arena import check_arena, prove_arena
from unsay.compiler.verify.obligation import Result, Status
from unsay.errors import PassError
from unsay.image import ModelSpec
from unsay.isa.opcodes import Region
from unsay.isa.program import Instruction, Program


def _lowered(spec: ModelSpec, passes=PIPELINE) -> Lowered:
    return lower(run_passes(build_graph(spec, tensor_types(spec), 512, 64), passes), spec, 512, 64)


@pytest.mark.parametrize(("spec", "passes"), [(SMOLLM2, PIPELINE), (TINY, UNFUSED), (TINY_QWEN2, PIPELINE)],
                         ids=["smollm2", "unfused", "qwen2"])  # fmt: skip
def test_tensors_that_live_together_share_no_byte(spec: ModelSpec, passes):
    lowered = _lowered(spec, passes)
    assert prove_arena(lowered.program, lowered.arena_bytes).status is Status.PROVED


def _moved(lowered: Lowered, index: int, field: str, by: int) -> Result:
    """What is said of the program with one offset changed."""
    instructions: list[Instruction] = list(lowered.program.instructions)
    names = [name for name, _ in instructions[index].row.fields]
    payload = tuple(v + by if name == field else v for name, v in zip(names, instructions[index].payload, strict=True))
    instructions[index] = replace(instructions[index], payload=payload)
    return prove_arena(Program(tuple(instructions)), lowered.arena_bytes)


def test_a_tensor_moved_into_its_neighbour_is_refuted():
    lowered = _lowered(TINY)
    moved = 0
    for index, op in enumerate(lowered.program):
        if op.row.name == "TENSOR" and Region(op.flags & 3) is Region.GLOBAL and op.integer("offset") and moved < 4:
            result = _moved(lowered, index, "offset", -64)
            assert result.status is Status.REFUTED, (index, op)
            moved += 1
    assert moved == 4


def test_a_hidden_tensor_over_the_residual_is_refuted_with_a_byte():
    lowered = _lowered(TINY)
    index = next(i for i, op in enumerate(lowered.program) if op.row.name == "FFN")
    result = _moved(lowered, index, "hidden", -lowered.program.instructions[index].integer("hidden"))
    assert result.status is Status.REFUTED
    assert f"instruction {index} (FFN) writes Q8W" in result.detail and "byte = " in result.detail


def test_an_arena_that_is_too_small_and_a_tensor_never_written_are_refuted():
    lowered = _lowered(TINY)
    assert "the arena at" in prove_arena(lowered.program, lowered.arena_bytes - 1).detail
    without_first = Program(tuple(op for op in lowered.program if op.row.name != "STREAM"))
    assert "before anything writes it" in prove_arena(without_first, lowered.arena_bytes).detail


def test_compiling_stops_where_memory_is_not_proved():
    lowered = _lowered(TINY)
    check_arena(lowered.program, lowered.arena_bytes)
    with pytest.raises(PassError, match=r"lower is refuted: .* the arena at"):
        check_arena(lowered.program, lowered.arena_bytes - 1)
