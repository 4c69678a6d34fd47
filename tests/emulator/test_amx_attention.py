"""Attention over int8 pages on AMX tiles: the bits of the definition, of vectors and of any chunks, nothing left."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.codegen.steps import (
    CAPACITY,
    UNITS,
    StepBuilder,
    make_batch,
    random_pages,
    run_native,
    tiny_spec,
)
from tests.emulator.amx import AMX_ON_AVX2, UNIT, Counts, assert_defined, assert_stops_leave_nothing, tiles
from tests.exactness.runs import run_alone, run_together
from tests.exactness.test_company import load, make_sequences
from unsay.compiler.codegen.kernels.attention_tiles import FEWEST_ROWS
from unsay.isa.classes import FAST, keys_of
from unsay.isa.formats import DType
from unsay.isa.kv import MOST_INT8_DIM
from unsay.isa.targets import Target


def attention(heads: int, kv_heads: int, dim: int) -> StepBuilder:
    """An ATTN of the second layer."""
    sizes = {"num_heads": heads, "num_kv_heads": kv_heads, "head_dim": dim}
    step = StepBuilder(np.random.default_rng(9), tiny_spec(**sizes, kv_format="int8"))
    step.activation(1, DType.F32, (heads + 2 * kv_heads) * dim)
    step.activation(2, DType.F32, heads * dim)
    columns = {"q_column": 0, "k_column": heads * dim, "v_column": (heads + kv_heads) * dim}
    step.add("ATTN", 2, 1, 1, 1, layer=1, **sizes, scale=dim**-0.5, **columns)
    return step


SHAPES = {
    "15 rows a tile": (3, 1, 64),
    "one tile": (4, 2, 16),
    "odd dims": (2, 2, 48),
    "two steps of 40 columns": (6, 2, 80),
    "two steps of 48 columns": (8, 2, 96),
    "two steps of 64 columns": (4, 1, 128),
    "17 rows a token": (17, 1, 16),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_attention_equals_the_definition(shape: str) -> None:
    """Odd numbers of tokens, across pages and parts, and of several sequences, one of them in two parts."""
    step = attention(*SHAPES[shape])
    for batch in (
        make_batch(list(range(11))),
        make_batch(list(range(245, 262))),
        make_batch([*range(30, 36), 700, *range(505, 518)], [0] * 6 + [1] + [2] * 13),
        make_batch(list(range(600, 600 + CAPACITY))),
    ):
        assert_defined(step, batch, threads=(1, 2))


def test_vectors_and_tiles_leave_the_same_bytes() -> None:
    step, batch = attention(9, 3, 64), make_batch(list(range(250, 250 + CAPACITY)))
    pages = random_pages(step.rng, step.spec, batch)
    with tiles():
        made = run_native(step, batch, pages, UNIT, 2, target=AMX_ON_AVX2)
    for unit in UNITS.values():
        assert run_native(step, batch, pages, unit, 2) == made


@pytest.mark.parametrize("dim", [64, MOST_INT8_DIM])
def test_the_largest_sums_stay_exact(dim: int) -> None:
    """All of q, and of keys and values, at their largest, of one sign and of two."""
    step = attention(1, 1, dim)
    values = np.ones((CAPACITY, 3 * dim), np.float32)
    values[1::2, :dim] = -1
    step.arena[: values.nbytes] = values.tobytes()
    assert_defined(step, make_batch(list(range(CAPACITY))), threads=(1,))


def test_few_rows_go_on_vectors() -> None:
    """Three heads a token: two tokens are a tile, one is none. Two configurations, 4 pages, 4 times 16 dims."""
    step = attention(3, 1, 64)
    counts = [assert_defined(step, make_batch(list(range(num_tokens))), threads=(1,)) for num_tokens in (1, 2)]
    assert 3 < FEWEST_ROWS <= 6
    if any(counts):
        assert counts == [Counts(0, 0, 0, 0), Counts(2, 2, 2 * 4 + 2 * 4, 0)]


@pytest.mark.parametrize("prefill", ["exact", FAST])
def test_a_model_gives_the_same_bits_on_tiles(prefill: str, tiny_paths: dict[str, Path], with_tiles: Target) -> None:
    """Alone in one chunk, and two in company in chunks of 7, where two threads have runs of 12 and 9 rows."""
    path = tiny_paths["llama-q8_0-d64"]
    options: dict[str, object] = {"kv": "int8", "prefill": prefill}
    with load(path, **options) as model:
        sequences = [keys_of(ids, prefill == FAST) for ids in make_sequences(model, 2, 280)]
        expected = [run_alone(model, keys) for keys in sequences]
    with tiles() as done, load(path, target=with_tiles.name, num_threads=2, **options) as model:
        run_alone(model, sequences[0]).assert_equals(expected[0], "one chunk")
        for outcome, alone in zip(run_together(model, sequences, 7), expected, strict=True):
            outcome.assert_equals(alone, "company")
        assert not done.is_emulated or done.counts().products > 1000


def test_a_stop_leaves_no_tiles_and_no_trace(tiny_paths: dict[str, Path], with_tiles: Target) -> None:
    with load(tiny_paths["llama-q8_0-d64"], kv="int8", num_threads=2, target=with_tiles.name) as model:
        assert_stops_leave_nothing(model, make_sequences(model, 1, 400)[0])
