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


def test_an_operand_that_others_read_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="ADD"):
        fast_program(lowered(*product(), make("ADD", 4, 4, 2)), DType.Q16)
