"""Hand-made steps: one launches every kernel GPUs have, one quantises what is hard to."""

from __future__ import annotations

import numpy as np

from tests.compiler.codegen.steps import CAPACITY, StepBuilder, make_batch, tiny_spec
from unsay.core import Batch
from unsay.isa.formats import QUANTISED_WEIGHTS, DType
from unsay.isa.opcodes import Channel

_WIDTH, _FFN = 96, 64
_COLUMNS = {"q_column": 0, "k_column": 128, "v_column": 192}
_HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32}


def layer_step(dtype: DType, table: DType, kv_format: str = "f16") -> StepBuilder:
    """Embedding by `table`; a layer with weights of `dtype`, a bias and grouped heads; logits of the chosen rows."""
    step = StepBuilder(np.random.default_rng(1), tiny_spec(kv_format=kv_format))
    wide, narrow = (DType.Q8W, DType.Q8A) if dtype in QUANTISED_WEIGHTS else (DType.F32, DType.F32)
    x, normed, packed, attended, gamma, weight = 1, 2, 3, 4, 5, 6
    step.activation(x, DType.F32, _WIDTH)
    step.matrix(weight, table, 80, _WIDTH)
    step.add("STREAM", x, weight, channel=Channel.EMBED)
    step.activation(normed, wide, _WIDTH)
    step.vector(gamma, _WIDTH)
    step.add("NORM", normed, x, gamma, eps=1e-5)
    step.activation(packed, DType.F32, 256)
    step.matrix(weight, dtype, 256, _WIDTH)
    step.table(7, 32)
    step.add("QKV", packed, normed, weight, 7, bias=step.vector(8, 256), **_HEADS)
    step.activation(attended, narrow, 128)
    step.add("ATTN", attended, packed, packed, packed, layer=1, scale=0.2, **_HEADS, **_COLUMNS)
    step.matrix(weight, dtype, _WIDTH, 128)
    step.add("MATMUL", x, attended, weight, flags=("ACCUMULATE",))
    step.add("NORM", normed, x, gamma, eps=1e-5)
    step.matrix(weight, dtype, 2 * _FFN, _WIDTH)
    step.matrix(7, dtype, _WIDTH, _FFN)
    hidden = step.activation(8, wide, _FFN)
    step.add("FFN", x, normed, weight, 7, ffn_size=_FFN, hidden=hidden, hidden_dtype=wide)
    _logits(step, dtype, wide, x, gamma)
    return step


def _logits(step: StepBuilder, dtype: DType, wide: DType, x: int, gamma: int) -> None:
    rows, product, weight, logits = 7, 8, 6, 9
    step.activation(rows, DType.F32, _WIDTH, flag="DIM_ROWS")
    step.add("NORM", rows, x, gamma, flags=("ROWS",), eps=1e-5)
    step.activation(product, wide, _WIDTH, flag="DIM_ROWS")
    step.add("SILU_MUL", product, rows, rows)
    step.matrix(weight, dtype, 80, _WIDTH)
    step.activation(logits, DType.F32, 80, flag="DIM_ROWS")
    step.add("MATMUL", logits, product, weight)
    step.add("ADD", logits, logits, logits)


def two_sequences() -> Batch:
    """A prompt that crosses a page, two tokens beyond a part of 256 keys, and two rows of logits."""
    return make_batch([14, 15, 16, 17, 299, 300], [0, 0, 0, 0, 1, 1], rows=[3, 5])


def corner_step() -> StepBuilder:
    """Blocks that are nearly everything a block can be, quantised both ways, and products of both."""
    step = StepBuilder(np.random.default_rng(2))
    values = step.rng.standard_normal((CAPACITY, 64)).astype(np.float32)
    values[0] = np.arange(64) - 31.5
    values[0, ::32] = 127, 254
    values[1] = 0
    values[2] = np.float32(2.0**-100) * np.arange(64) / 64
    values[3, :32] = [9] + [1] * 30 + [1.5]  # 4.5 times the largest is the sum
    values[4, 5] = 3e38
    values[5] = 1e-44
    step.activation(1, DType.F32, 64, values)
    for place, dtype in enumerate((DType.Q8A, DType.Q8W)):
        step.activation(2, dtype, 64)
        step.add("QUANT", 2, 1)
        step.matrix(3, DType.Q8_0, 48, 64)
        step.activation(4 + place, DType.F32, 48)
        step.add("MATMUL", 4 + place, 2, 3)
    return step


def six_tokens() -> Batch:
    """One sequence: as many rows as `corner_step` has corners."""
    return make_batch(list(range(6)))
