"""The program of the fast class: which tensors change, where they lie, and what has none."""

from __future__ import annotations

import pytest

from unsay.compiler.lower import Lowered
from unsay.compiler.lower.fast import fast_program
from unsay.compiler.lower.plan import PackingPlan
from unsay.errors import UnsupportedError
from unsay.isa.formats import WHOLE_ACTIVATIONS, DType, activation_bytes
from unsay.isa.program import Instruction, Program, make

END = 1 << 20


def tensor(register: int, dtype: DType, columns: int, offset: int, flag: str = "DIM_TOKENS") -> Instruction:
    return make(
        "TENSOR", register, flags=[flag], dtype=int(dtype), rank=2, dim0=8, dim1=columns, dim2=1, dim3=1, offset=offset
    )


def lowered(*instructions: Instruction) -> Lowered:
    return Lowered(Program(instructions), PackingPlan((), 0), END)


def product(columns: int = 64, flag: str = "DIM_TOKENS") -> tuple[Instruction, ...]:
    """R2 = norm of R1; R4 = W R2."""
    return (
        tensor(1, DType.F32, columns, 0),
        tensor(2, DType.Q8W, columns, 4096, flag),
        tensor(3, DType.F32, columns, 0, "REGION1"),
        make("NORM", 2, 1, 3, eps=1e-5),
        tensor(4, DType.F32, 32, 8192, flag),
        make("MATMUL", 4, 2, 3),
    )


@pytest.mark.parametrize("dtype", sorted(WHOLE_ACTIVATIONS))
def test_the_operand_of_a_product_is_another_tensor_behind_the_arena_and_nothing_else_changes(dtype: DType) -> None:
    exact = lowered(*product(), *product())
    fast = fast_program(exact, dtype)
    assert fast.arena_bytes == END + activation_bytes(dtype, 8, 64) // 64 * 64 + 64
    for place, (before, after) in enumerate(zip(exact.program, fast.program, strict=True)):
        if place % 6 == 1:
            assert (after.integer("dtype"), after.integer("offset")) == (dtype, END)
        else:
            assert after == before


def test_a_product_over_logit_rows_stays() -> None:
    exact = lowered(*product(flag="DIM_ROWS"))
    assert fast_program(exact, DType.Q16) == exact


def shared(*between: Instruction) -> tuple[Instruction, ...]:
    """R2 = norm of R1, R5 = R2 quantised; R4 = W R2, then R4 = W R5, with something between."""
    *before, norm, out, first = product()
    x, quantised = tensor(2, DType.F32, 64, 4096), tensor(5, DType.Q8W, 64, 16384)
    before[1] = x
    return (*before, norm, quantised, make("QUANT", 5, 2), out, first, *between, make("MATMUL", 4, 5, 3))


def test_an_operand_in_two_kinds_becomes_one_tensor() -> None:
    fast = fast_program(lowered(*shared()), DType.Q16)
    names = [op.row.name for op in fast.program]
    assert names.count("MATMUL") == 2 and "QUANT" not in names
    x, quantised = fast.program.instructions[1], fast.program.instructions[4]
    assert x.registers[0] == 2 and quantised.registers[0] == 5 and x.payload == quantised.payload
    assert fast.arena_bytes == END + activation_bytes(DType.Q16, 8, 64) // 64 * 64 + 64


def test_an_operand_that_others_read_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="ADD"):
        fast_program(lowered(*product(), make("ADD", 4, 4, 2)), DType.Q16)


def test_an_operand_whose_place_is_taken_too_early_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"MATMUL uses Q8W \[tokens, 64\] at 16384.* prefill 'exact'"):
        fast_program(lowered(*shared(make("NORM", 2, 1, 3, eps=1e-5))), DType.Q16)
