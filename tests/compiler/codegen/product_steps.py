"""Steps of products that are the same for every format of activations, and the rows they are given."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.compiler.codegen.steps import CAPACITY, StepBuilder
from unsay.isa.formats import PART_COLUMNS, WHOLE_ACTIVATIONS, DType
from unsay.isa.opcodes import NO_OFFSET

_HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32}


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


def add_mixed(step: StepBuilder, x: DType, width: int) -> None:
    """Register 15: mixed rows, for formats of whole rows so small that what becomes of them fits f16. Register 1: the
    same in the format."""
    divisor = np.float32(512 if x in WHOLE_ACTIVATIONS else 1)
    step.activation(15, DType.F32, width, mixed_rows(step.rng, width) / divisor)
    step.activation(1, x, width)
    step.add("QUANT", 1, 15)


def matmul_step(x: DType, weights: DType, width: int = 160) -> StepBuilder:
    """48 rows, with a bias, and added to what is there."""
    step = StepBuilder(np.random.default_rng(3))
    add_mixed(step, x, width)
    step.matrix(2, weights, 48, width)
    step.vector(3, 48)
    step.activation(4, DType.F32, 48)
    step.activation(5, DType.F32, 48)
    step.add("MATMUL", 4, 1, 2, 3)
    step.add("MATMUL", 5, 1, 2, flags=("ACCUMULATE",))
    return step


def qkv_and_ffn_step(x: DType, weights: DType) -> StepBuilder:
    """Four heads over two KV heads, and a feed-forward of 64; their rows are in register 4."""
    step = StepBuilder(np.random.default_rng(4))
    add_mixed(step, x, 96)
    width = (4 + 2 * 2) * 32
    step.matrix(2, weights, width, 96)
    step.table(3, 32)
    step.activation(4, DType.F32, width)
    step.add("QKV", 4, 1, 2, 3, bias=NO_OFFSET, **_HEADS)
    step.matrix(5, weights, 2 * 64, 96)
    step.matrix(6, weights, 96, 64)
    step.activation(7, DType.F32, 96)
    hidden = step.activation(8, x, 64)
    step.add("FFN", 7, 1, 5, 6, ffn_size=64, hidden=hidden, hidden_dtype=int(x))
    return step


def add_attention(step: StepBuilder, x: DType) -> None:
    """Of what `qkv_and_ffn_step` leaves, to the format."""
    step.activation(9, x, 128)
    step.add("ATTN", 9, 4, 4, 4, layer=1, scale=0.25, q_column=0, k_column=128, v_column=192, **_HEADS)


def largest_sum_step(x: DType) -> tuple[StepBuilder, int]:
    """All weights and all activations at their largest, in a whole part (N15) and a short one; where the sums are."""
    width = PART_COLUMNS + 32
    step = StepBuilder(np.random.default_rng(5))
    values = np.ones((CAPACITY, width), np.float32)
    values[1] = -1
    step.activation(15, DType.F32, width, values)
    step.activation(1, x, width)
    step.add("QUANT", 1, 15)
    at = step.matrix(2, DType.F32, 16, width)
    step.weights[at : at + 64 * width] = np.ones(16 * width, np.float32).tobytes()
    out = step.activation(4, DType.F32, 16)
    step.add("MATMUL", 4, 1, 2)
    return step, out
