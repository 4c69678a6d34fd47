"""Q8W in machine code against the definition, bit for bit: quantising, and tiles that mix wide and narrow tokens."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen.product_steps import add_mixed, matmul_step, mixed_rows, qkv_and_ffn_step
from tests.compiler.codegen.steps import CAPACITY, UNITS, StepBuilder, make_batch, run_reference
from tests.compiler.codegen.test_kernels import assert_same
from tests.runtime.test_wide_blocks import special_rows
from unsay.isa.formats import QUANTISED_WEIGHTS, DType
from unsay.isa.opcodes import NO_REGISTER

unit_and_format = pytest.mark.parametrize(
    ("unit", "dtype"), [(unit, dtype) for dtype in sorted(QUANTISED_WEIGHTS) for unit in UNITS]
)
TOKENS = (1, 2, 6, 7, 8, 9, 17)


@pytest.mark.parametrize("num_blocks", [1, 3, 16, 18])
def test_quantise_equals_definition(num_blocks: int) -> None:
    step = StepBuilder(np.random.default_rng(1))
    values = mixed_rows(step.rng, num_blocks * 32)
    rows = list(special_rows(num_blocks).values())
    values[: len(rows)] = rows
    step.activation(1, DType.F32, num_blocks * 32, values)
    step.activation(2, DType.Q8W, num_blocks * 32)
    step.add("QUANT", 2, 1)
    for num_tokens in (1, 7, CAPACITY):
        assert_same(step, make_batch(list(range(num_tokens))), threads=(1, 3))


@pytest.mark.parametrize("width", [32, 96, 544, 576])
@pytest.mark.parametrize("flags", [(), ("LAYER",), ("ROWS",)])
def test_norm_equals_definition(width: int, flags: tuple[str, ...]) -> None:
    step = StepBuilder(np.random.default_rng(2))
    step.activation(1, DType.F32, width, mixed_rows(step.rng, width))
    step.vector(2, width)
    beta = NO_REGISTER
    if "LAYER" in flags:
        step.vector(beta := 3, width)
    step.activation(4, DType.Q8W, width, flag="DIM_ROWS" if "ROWS" in flags else "DIM_TOKENS")
    step.add("NORM", 4, 1, 2, beta, flags=flags, eps=1e-5)
    assert_same(step, make_batch(list(range(7)), rows=[2, 5, 6]))


@unit_and_format
def test_matmul_equals_definition(unit: str, dtype: DType) -> None:
    step = matmul_step(DType.Q8W, dtype)
    for num_tokens in TOKENS:
        assert_same(step, make_batch(list(range(num_tokens))), unit)


@unit_and_format
def test_qkv_and_ffn_equal_definition(unit: str, dtype: DType) -> None:
    step = qkv_and_ffn_step(DType.Q8W, dtype)
    for num_tokens in (1, 9):
        assert_same(step, make_batch(list(range(num_tokens))), unit)


@pytest.mark.parametrize("fill", [0x80, 0x7F, 0xFF])
@unit_and_format
def test_the_largest_sums_stay_exact(unit: str, dtype: DType, fill: int) -> None:
    step = StepBuilder(np.random.default_rng(5))
    values = np.zeros((CAPACITY, 96), np.float32)
    values[::2, 5:8], values[1::2, 5:8] = 100, -100
    step.activation(15, DType.F32, 96, values)
    step.activation(1, DType.Q8W, 96)
    step.add("QUANT", 1, 15)
    step.matrix(2, dtype, 16, 96)
    num_bytes = 512 if dtype is DType.Q8_0 else 256
    step.weights[:num_bytes] = bytes([fill]) * num_bytes
    step.activation(3, DType.F32, 16)
    step.add("MATMUL", 3, 1, 2)
    for num_tokens in (1, 8):
        assert_same(step, make_batch(list(range(num_tokens))), unit, threads=(1,))


def test_the_rows_are_mixed() -> None:
    step = StepBuilder(np.random.default_rng(3))
    add_mixed(step, DType.Q8W, 160)
    batch = make_batch(list(range(CAPACITY)))
    arena = run_reference(step, batch, np.zeros((1, step.spec.kv_layout.page_bytes), np.uint8)).arena
    start = CAPACITY * 160 * 4 + CAPACITY * (2 * 160 + 160 // 4)
    wide = arena[start : start + CAPACITY * 5 * 4].view(np.int32).reshape(CAPACITY, 5)
    assert wide.any(axis=0).all() and not wide.all(axis=0).any()
    assert {0, 1} <= set(wide.sum(axis=1).tolist())
