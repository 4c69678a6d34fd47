"""Every kernel against the definition, bit for bit: all formats, odd shapes and token counts, each dot unit."""

from __future__ import annotations

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
from unsay.core import Batch
from unsay.isa.formats import QUANTISED_WEIGHTS, DType
from unsay.isa.kv import KV_FORMATS
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Channel

WEIGHTS = (DType.Q4_1, DType.Q4_0, DType.Q8_0, DType.F16, DType.BF16, DType.F32)
unit_and_format = pytest.mark.parametrize(
    ("unit", "dtype"),
    [(unit, dtype) for dtype in WEIGHTS for unit in UNITS if unit == "avx2" or dtype in QUANTISED_WEIGHTS],
)


def assert_same(step: StepBuilder, batch: Batch, unit: str = "avx2", threads: tuple[int, ...] = (1, 2)) -> None:
    """The native step leaves the same bytes as the definition, in every tensor and page, and changes no other."""
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    assert not np.array_equal(expected.arena, np.frombuffer(step.arena, np.uint8)), "the step does something"
    for num_threads in threads:
        assert run_native(step, batch, pages, UNITS[unit], num_threads) == expected, num_threads


def quantised_input(step: StepBuilder, register: int, dtype: DType, width: int) -> None:
    """An input for weights of this format: noise, quantised first where the format wants it."""
    values = step.rng.standard_normal((CAPACITY, width)).astype(np.float32)
    values[0, :32] = [1, -1] * 16
    values[1] = 0
    if dtype not in QUANTISED_WEIGHTS:
        step.activation(register, DType.F32, width, values)
        return
    step.activation(15, DType.F32, width, values)
    step.activation(register, DType.Q8A, width)
    step.add("QUANT", register, 15)


@unit_and_format
def test_matmul_equals_definition(unit: str, dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(1))
    quantised_input(step, 1, dtype, 96)
    step.matrix(2, dtype, 48, 96)
    step.vector(3, 48)
    for register in (4, 5, 6):
        step.activation(register, DType.F32, 48)
    step.add("MATMUL", 4, 1, 2)
    step.add("MATMUL", 5, 1, 2, 3)
    step.add("MATMUL", 6, 1, 2, flags=("ACCUMULATE",))
    for num_tokens in (1, 3, 17):
        assert_same(step, make_batch(list(range(num_tokens))), unit)
    assert_same(step, make_batch([9]), unit, threads=(4,))


@unit_and_format
def test_qkv_equals_definition(unit: str, dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(2))
    quantised_input(step, 1, dtype, 64)
    width = (4 + 2 * 2) * 32
    step.matrix(2, dtype, width, 64)
    step.table(3, 32)
    bias = step.vector(4, width)
    step.activation(5, DType.F32, width)
    step.activation(6, DType.F32, width)
    heads = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32}
    step.add("QKV", 5, 1, 2, 3, bias=NO_OFFSET, **heads)
    step.add("QKV", 6, 1, 2, 3, bias=bias, **heads)
    assert_same(step, make_batch([5, 6, 7, 300, 1, 1023, 0, 9], [0, 0, 0, 1, 2, 3, 4, 5]), unit)
    assert_same(step, make_batch([700]), unit)


@unit_and_format
def test_ffn_equals_definition(unit: str, dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(3))
    hidden_dtype = DType.Q8A if dtype in QUANTISED_WEIGHTS else DType.F32
    quantised_input(step, 1, dtype, 96)
    step.matrix(2, dtype, 2 * 64, 96)
    step.matrix(3, dtype, 96, 64)
    step.activation(4, DType.F32, 96)
    hidden = step.activation(5, hidden_dtype, 64)
    step.add("FFN", 4, 1, 2, 3, ffn_size=64, hidden=hidden, hidden_dtype=int(hidden_dtype))
    for num_tokens in (1, 9):
        assert_same(step, make_batch(list(range(num_tokens))), unit)


@pytest.mark.parametrize("dtype", WEIGHTS)
def test_embed_equals_definition(dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(4))
    step.matrix(1, dtype, 80, 96)
    step.activation(2, DType.F32, 96)
    step.add("STREAM", 2, 1, channel=Channel.EMBED)
    assert_same(step, make_batch(list(range(11))))


@pytest.mark.parametrize("out", [DType.F32, DType.Q8A])
@pytest.mark.parametrize("flags", [(), ("LAYER",), ("ROWS",)])
def test_norm_equals_definition(out: DType, flags: tuple[str, ...]) -> None:
    step = StepBuilder(np.random.default_rng(5))
    step.activation(1, DType.F32, 96)
    step.vector(2, 96)
    beta = NO_REGISTER
    if "LAYER" in flags:
        step.vector(beta := 3, 96)
    step.activation(4, out, 96, flag="DIM_ROWS" if "ROWS" in flags else "DIM_TOKENS")
    step.add("NORM", 4, 1, 2, beta, flags=flags, eps=1e-5)
    assert_same(step, make_batch(list(range(7)), rows=[2, 5, 6]))


def test_quantise_equals_definition_at_zero_ties_and_the_smallest_numbers() -> None:
    step = StepBuilder(np.random.default_rng(6))
    values = step.rng.standard_normal((CAPACITY, 64)).astype(np.float32)
    values[0] = 0
    values[1, :32] = np.float32(2.0**-100)
    values[2, :32] = np.nextafter(np.float32(2.0**-100), np.float32(0))
    values[3, :32] = np.arange(32) - 15.5
    values[3, 0] = 127
    values[4] = 3e38
    step.activation(1, DType.F32, 64, values)
    step.activation(2, DType.Q8A, 64)
    step.add("QUANT", 2, 1)
    assert_same(step, make_batch(list(range(6))))


@pytest.mark.parametrize("out", [DType.F32, DType.Q8A, DType.Q8W])
def test_silu_mul_equals_definition_at_the_ends_of_exp(out: DType) -> None:
    step = StepBuilder(np.random.default_rng(7))
    gate = (20 * step.rng.standard_normal((CAPACITY, 64))).astype(np.float32)
    gate[0, :8] = [0, -0.0, 87.33, -87.33, 88.5, -88.5, 200, -200]
    step.activation(1, DType.F32, 64, gate)
    step.activation(2, DType.F32, 64)
    step.activation(3, out, 64)
    step.add("SILU_MUL", 3, 1, 2)
    assert_same(step, make_batch(list(range(5))))


def test_add_and_rope_equal_definition() -> None:
    step = StepBuilder(np.random.default_rng(8))
    for register in (1, 2, 3):
        step.activation(register, DType.F32, 96)
    step.table(4, 16)
    step.add("ADD", 3, 1, 2)
    step.add("ROPE", 2, 2, 4, num_heads=3, head_dim=16, column=32)
    assert_same(step, make_batch([0, 1, 2, 900, 17], [0, 0, 0, 1, 2]))


SHAPES = {
    "16 wide, 2 of 4": (4, 2, 16),
    "64 wide, 1 of 3": (3, 1, 64),
    "32 wide, 2 of 10": (10, 2, 32),
    "each": (2, 2, 48),
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("kv_format", KV_FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_definition(shape: str, kv_format: str, unit: str) -> None:
    heads, kv_heads, dim = SHAPES[shape]
    out = DType.F32 if kv_format == "f32" else DType.Q8A
    sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim, "kv_format": kv_format}
    step = StepBuilder(np.random.default_rng(9), tiny_spec(**sizes))
    step.activation(1, DType.F32, (heads + 2 * kv_heads) * dim)
    step.activation(2, out, heads * dim)
    step.add(
        "ATTN", 2, 1, 1, 1, layer=1, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, scale=dim**-0.5,
        q_column=0, k_column=heads * dim, v_column=(heads + kv_heads) * dim,
    )  # fmt: skip
    for batch in (
        make_batch([0]),
        make_batch([600]),
        make_batch([254, 255, 256, 257, 258]),
        make_batch(list(range(241, 257))),
        make_batch([3, 4, 700, 511, 512], [0, 0, 1, 2, 2]),
    ):
        assert_same(step, batch, unit, threads=(1, 2, 3))


def test_a_row_of_nothing_has_an_int8_scale_of_nothing() -> None:
    step = StepBuilder(np.random.default_rng(9), tiny_spec(num_heads=1, num_kv_heads=1, head_dim=16, kv_format="int8"))
    values = np.zeros((CAPACITY, 48), np.float32)
    values[1] = 2.0**-101
    values[2] = np.arange(-24, 24) / 24
    step.activation(1, DType.F32, 48, values)
    step.activation(2, DType.F32, 16)
    sizes = {"num_heads": 1, "num_kv_heads": 1, "head_dim": 16, "q_column": 0, "k_column": 16, "v_column": 32}
    step.add("ATTN", 2, 1, 1, 1, layer=1, scale=0.25, **sizes)
    assert_same(step, make_batch([0, 1, 2]))


@pytest.mark.parametrize("kv_format", KV_FORMATS)
def test_attention_of_many_tokens_equals_one_at_a_time(kv_format: str) -> None:
    step = StepBuilder(np.random.default_rng(10), tiny_spec(kv_format=kv_format))
    step.activation(1, DType.F32, 8 * 32)
    offset = step.activation(2, DType.F32, 4 * 32)
    step.add(
        "ATTN", 2, 1, 1, 1, layer=0, num_heads=4, num_kv_heads=2, head_dim=32, scale=0.125, q_column=0, k_column=128,
        v_column=192,
    )  # fmt: skip
    first = 250
    batch = make_batch([first + place for place in range(CAPACITY)])
    pages = random_pages(step.rng, step.spec, batch)
    whole = run_native(step, batch, pages)
    assert whole is not None
    queries = np.frombuffer(step.arena, np.float32, CAPACITY * 256).reshape(CAPACITY, 256).copy()
    for place in range(CAPACITY):
        step.arena[:1024] = queries[place].tobytes()
        single = Batch(
            batch.token_ids[:1], batch.positions[place : place + 1].copy(), batch.sequence[:1], batch.page_tables,
            batch.logit_rows[:1] * 0,
        )  # fmt: skip
        alone = run_native(step, single, pages)
        assert alone is not None
        assert np.array_equal(alone.tensor(offset, 128)[0], whole.tensor(offset, 128)[place])
        pages = alone.pages
