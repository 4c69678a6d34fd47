"""What a kernel has to read and multiply at least, from its name and the step."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.profile import make_batch, work_of
from unsay.compiler.pipeline import load
from unsay.isa.formats import DType, weight_bytes

TOKEN_BYTES = {"f16": 2 * 2 * 16 * 2, "int8": 2 * 2 * (16 + 4)}
"""Keys and values of two heads of 16, in one layer."""


def test_a_product_reads_its_weights_once_for_all_tokens(tiny_path: Path) -> None:
    spec = load(tiny_path).spec
    work = work_of("gate_up_q4_1_320x96_q8w_q8w", spec, make_batch(spec, 8, 5), 8)
    assert work == (weight_bytes(DType.Q4_1, 320, 96), 320 * 96 * 8)


@pytest.mark.parametrize("kv", TOKEN_BYTES)
def test_attention_reads_the_context_of_each_sequence_once(tiny_path: Path, kv: str) -> None:
    spec = load(tiny_path, kv).spec
    apart, alone = make_batch(spec, 4, 100), make_batch(spec, 64, 100)
    assert work_of("attend_x", spec, apart, 4) == (4 * 101 * TOKEN_BYTES[kv], 4 * 101 * 2 * 6 * 16)
    seen = sum(range(101, 165))
    assert work_of("attend_x", spec, alone, 64) == (164 * TOKEN_BYTES[kv], seen * 2 * 6 * 16)


def test_nothing_else_counts(tiny_path: Path) -> None:
    spec = load(tiny_path).spec
    assert work_of("rms_norm_96_q8w", spec, make_batch(spec, 1, 5), 1) == (0, 0)
