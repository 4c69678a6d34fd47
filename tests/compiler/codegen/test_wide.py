"""Q8W in machine code against the definition, bit for bit: quantising, and tiles that mix wide and narrow tokens."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.compiler.codegen.steps import CAPACITY, UNITS, StepBuilder, make_batch, run_reference
from tests.compiler.codegen.test_kernels import assert_same
from tests.runtime.test_wide_blocks import special_rows
from unsay.isa.formats import QUANTISED_WEIGHTS, DType
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER

unit_and_format = pytest.mark.parametrize(
    ("unit", "dtype"), [(unit, dtype) for dtype in sorted(QUANTISED_WEIGHTS) for unit in UNITS]
)
TOKENS = (1, 2, 6, 7, 8, 9, 17)


def mixed_rows(rng: np.random.Generator, width: int) -> NDArray[np.float32]:
    """Rows of noise: token t has a wide block at t % (blocks + 1), or none; and at the far end of all, an outlier."""
    values = rng.standard_normal((CAPACITY, width)).astype(np.float32)
    for token in range(CAPACITY):
        block = token % (width // 32 + 1)
        if block < width // 32:
            values[token, block * 32 + token] = 30 + token
    values[3] = 0
    values[5, -1] = -1000
    values[6, 3:6] = 100
    return values


def wide_input(step: StepBuilder, width: int) -> None:
    """Register 1: mixed rows as Q8W."""
    step.activation(15, DType.F32, width, mixed_rows(step.rng, width))
    step.activation(1, DType.Q8W, width)
    step.add("QUANT", 1, 15)


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
    step = StepBuilder(np.random.default_rng(3))
    wide_input(step, 160)
    step.matrix(2, dtype, 48, 160)
    step.vector(3, 48)
    step.activation(4, DType.F32, 48)
    step.activation(5, DType.F32, 48)
    step.add("MATMUL", 4, 1, 2, 3)
    step.add("MATMUL", 5, 1, 2, flags=("ACCUMULATE",))
    for num_tokens in TOKENS:
        assert_same(step, make_batch(list(range(num_tokens))), unit)


@unit_and_format
def test_qkv_and_ffn_equal_definition(unit: str, dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(4))
    wide_input(step, 96)
    width = (4 + 2 * 2) * 32
    step.matrix(2, dtype, width, 96)
    step.table(3, 32)
    step.activation(4, DType.F32, width)
    step.add("QKV", 4, 1, 2, 3, num_heads=4, num_kv_heads=2, head_dim=32, bias=NO_OFFSET)
    step.matrix(5, dtype, 2 * 64, 96)
    step.matrix(6, dtype, 96, 64)
    step.activation(7, DType.F32, 96)
    hidden = step.activation(8, DType.Q8W, 64)
    step.add("FFN", 7, 1, 5, 6, ffn_size=64, hidden=hidden, hidden_dtype=int(DType.Q8W))
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
    wide_input(step, 160)
    batch = make_batch(list(range(CAPACITY)))
    arena = run_reference(step, batch, np.zeros((1, step.spec.kv_layout.page_bytes), np.uint8)).arena
    start = CAPACITY * 160 * 4 + CAPACITY * (2 * 160 + 160 // 4)
    wide = arena[start : start + CAPACITY * 5 * 4].view(np.int32).reshape(CAPACITY, 5)
    assert wide.any(axis=0).all() and not wide.all(axis=0).any()
    assert {0, 1} <= set(wide.sum(axis=1).tolist())
