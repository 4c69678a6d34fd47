"""Products of the fast class in machine code against the definition (N14, N15), for every weight format."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen.product_steps import (
    add_attention,
    add_mixed,
    largest_sum_step,
    matmul_step,
    qkv_and_ffn_step,
)
from tests.compiler.codegen.steps import (
    CAPACITY,
    UNITS,
    StepBuilder,
    make_batch,
    random_pages,
    run_reference,
)
from tests.compiler.codegen.test_kernels import assert_same
from unsay.isa.formats import FLOAT_WEIGHTS, PART_COLUMNS, QUANTISED_WEIGHTS, DType
from unsay.isa.opcodes import NO_REGISTER

unit_and_format = pytest.mark.parametrize(
    ("unit", "dtype"), [(unit, dtype) for dtype in sorted(QUANTISED_WEIGHTS | FLOAT_WEIGHTS) for unit in UNITS]
)
TOKENS = (1, 2, 5, 6, 7, 12, 13, 17)


@pytest.mark.parametrize("width", [32, 96, 544, 1536])
@pytest.mark.parametrize("flags", [(), ("LAYER",)])
def test_quantise_and_norm_equal_definition(width: int, flags: tuple[str, ...]) -> None:
    step = StepBuilder(np.random.default_rng(2))
    add_mixed(step, DType.Q16, width)
    step.vector(2, width)
    beta = NO_REGISTER
    if "LAYER" in flags:
        step.vector(beta := 3, width)
    step.activation(4, DType.Q16, width)
    step.add("NORM", 4, 15, 2, beta, flags=flags, eps=1e-5)
    step.activation(5, DType.Q16, width)
    step.add("SILU_MUL", 5, 15, 15)
    for num_tokens in (1, 7, CAPACITY):
        assert_same(step, make_batch(list(range(num_tokens))), threads=(1, 3))


@pytest.mark.parametrize("width", [160, 192, 608])
@unit_and_format
def test_matmul_equals_definition(unit: str, dtype: DType, width: int) -> None:
    """A part that is short; a full one; three and a short one."""
    step = matmul_step(DType.Q16, dtype, width)
    for num_tokens in TOKENS:
        assert_same(step, make_batch(list(range(num_tokens))), unit)


@unit_and_format
def test_qkv_ffn_and_attention_equal_definition(unit: str, dtype: DType) -> None:
    step = qkv_and_ffn_step(DType.Q16, dtype)
    add_attention(step, DType.Q16)
    for num_tokens in (1, 13):
        assert_same(step, make_batch(list(range(num_tokens))), unit, threads=(1, 2))


@pytest.mark.parametrize("unit", UNITS)
def test_the_largest_sum_stays_exact(unit: str) -> None:
    step, out = largest_sum_step(DType.Q16)
    batch = make_batch([0, 1])
    assert_same(step, batch, unit)
    made = run_reference(step, batch, random_pages(step.rng, step.spec, batch)).tensor(out, 16)
    width = PART_COLUMNS + 32
    np.testing.assert_allclose(made[:2, 0], [width, -width], rtol=1e-5)
