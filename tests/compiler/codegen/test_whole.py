"""Products of the fast class in machine code against the definition (N14, N15), for every weight format."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen.steps import (
    CAPACITY,
    UNITS,
    StepBuilder,
    make_batch,
    random_pages,
    run_reference,
)
from tests.compiler.codegen.test_kernels import assert_same
from tests.compiler.codegen.test_wide import mixed_rows
from unsay.isa.formats import FLOAT_WEIGHTS, QUANTISED_WEIGHTS, WHOLE_COLUMNS, DType, whole_most
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER

unit_and_format = pytest.mark.parametrize(
    ("unit", "dtype"), [(unit, dtype) for dtype in sorted(QUANTISED_WEIGHTS | FLOAT_WEIGHTS) for unit in UNITS]
)
TOKENS = (1, 2, 5, 6, 7, 12, 13, 17)


def whole_input(step: StepBuilder, width: int) -> None:
    """Register 1: mixed rows as Q16, so small that what becomes of them fits f16."""
    step.activation(15, DType.F32, width, mixed_rows(step.rng, width) / np.float32(512))
    step.activation(1, DType.Q16, width)
    step.add("QUANT", 1, 15)


@pytest.mark.parametrize("width", [32, 96, 544, 1536])
@pytest.mark.parametrize("flags", [(), ("LAYER",)])
def test_quantise_and_norm_equal_definition(width: int, flags: tuple[str, ...]) -> None:
    step = StepBuilder(np.random.default_rng(2))
    whole_input(step, width)
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


@unit_and_format
def test_matmul_equals_definition(unit: str, dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(3))
    whole_input(step, 160)
    step.matrix(2, dtype, 48, 160)
    step.vector(3, 48)
    step.activation(4, DType.F32, 48)
    step.activation(5, DType.F32, 48)
    step.add("MATMUL", 4, 1, 2, 3)
    step.add("MATMUL", 5, 1, 2, flags=("ACCUMULATE",))
    for num_tokens in TOKENS:
        assert_same(step, make_batch(list(range(num_tokens))), unit)


@unit_and_format
def test_qkv_ffn_and_attention_equal_definition(unit: str, dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(4))
    whole_input(step, 96)
    width = (4 + 2 * 2) * 32
    step.matrix(2, dtype, width, 96)
    step.table(3, 32)
    step.activation(4, DType.F32, width)
    step.add("QKV", 4, 1, 2, 3, num_heads=4, num_kv_heads=2, head_dim=32, bias=NO_OFFSET)
    step.matrix(5, dtype, 2 * 64, 96)
    step.matrix(6, dtype, 96, 64)
    step.activation(7, DType.F32, 96)
    hidden = step.activation(8, DType.Q16, 64)
    step.add("FFN", 7, 1, 5, 6, ffn_size=64, hidden=hidden, hidden_dtype=int(DType.Q16))
    step.activation(9, DType.Q16, 128)
    columns = {"q_column": 0, "k_column": 128, "v_column": 192}
    step.add("ATTN", 9, 4, 4, 4, layer=1, num_heads=4, num_kv_heads=2, head_dim=32, scale=0.25, **columns)
    for num_tokens in (1, 13):
        assert_same(step, make_batch(list(range(num_tokens))), unit, threads=(1, 2))


@pytest.mark.parametrize("unit", UNITS)
def test_the_largest_sum_stays_exact(unit: str) -> None:
    """All weights and all activations at their largest, in the longest row that is allowed."""
    step = StepBuilder(np.random.default_rng(5))
    values = np.ones((CAPACITY, WHOLE_COLUMNS), np.float32)
    values[1] = -1
    step.activation(15, DType.F32, WHOLE_COLUMNS, values)
    step.activation(1, DType.Q16, WHOLE_COLUMNS)
    step.add("QUANT", 1, 15)
    at = step.matrix(2, DType.F32, 16, WHOLE_COLUMNS)
    step.weights[at : at + 64 * WHOLE_COLUMNS] = np.ones(16 * WHOLE_COLUMNS, np.float32).tobytes()
    out = step.activation(4, DType.F32, 16)
    step.add("MATMUL", 4, 1, 2)
    batch = make_batch([0, 1])
    assert_same(step, batch, unit)
    made = run_reference(step, batch, random_pages(step.rng, step.spec, batch)).tensor(out, 16)
    np.testing.assert_allclose(made[:2, 0], [WHOLE_COLUMNS, -WHOLE_COLUMNS], rtol=1e-5)
    assert 2**31 - 127 * WHOLE_COLUMNS <= 127 * whole_most(WHOLE_COLUMNS) * WHOLE_COLUMNS < 2**31
