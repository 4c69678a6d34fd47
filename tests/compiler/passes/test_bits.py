"""Fusions keep the bits: the fused and the unfused program of one model give the same logits and the same KV bytes."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TINY_VARIANTS
from tests.tiny import write_tiny_gguf
from unsay.compiler.limits import LIMITS
from unsay.compiler.lower import lower
from unsay.compiler.pack import write_packed
from unsay.compiler.passes import run_passes
from unsay.compiler.passes.pipeline import PIPELINE, UNFUSED, Pass
from unsay.compiler.pipeline import Loaded, load, to_graph
from unsay.core import Batch
from unsay.isa.formats import padded_rows
from unsay.isa.opcodes import NUM_REGISTERS, Region
from unsay.isa.program import Program
from unsay.runtime.reference import TensorUnit

_MIXED = {
    "q-k-v of two formats": {"dtype": {"default": "Q4_1", "attn_v": "Q8_0"}},
    "gate and up of two formats": {"dtype": {"default": "Q4_0", "ffn_up": "F16"}},
    "qwen2, q of another format": {"architecture": "qwen2", "dtype": {"default": "Q4_1", "attn_q": "BF16"}},
    "inner rows of 48": {"dtype": "F32", "ffn": 48},
}
_MODELS = TINY_VARIANTS | _MIXED
_PROMPT = [5, 77, 20, 6, 8, 8, 131]


def _run(loaded: Loaded, passes: tuple[Pass, ...]) -> tuple[Program, np.ndarray, np.ndarray]:
    """The program, the logits of every prompt token, the KV pages, from the reference executor's tensor unit."""
    spec = loaded.spec
    lowered = lower(run_passes(to_graph(loaded), passes), spec, LIMITS.max_tokens, LIMITS.max_rows)
    packed = io.BytesIO()
    write_packed(lowered.plan, loaded.file, packed)
    memory = {
        Region.GLOBAL: np.full(lowered.arena_bytes, 0xA5, np.uint8),
        Region.TEMPORAL: np.zeros(LIMITS.max_rows * padded_rows(spec.vocab_size) * 4, np.uint8),
        Region.PERSISTENT: np.frombuffer(packed.getbuffer(), np.uint8),
    }
    pages = np.zeros((1, spec.kv_layout.page_bytes), np.uint8)
    unit = TensorUnit(lambda region, offset: memory[region][offset:], pages, spec.kv_layout)
    registers, logits = [0] * NUM_REGISTERS, None
    for instruction in lowered.program:
        if instruction.row.name != "HALT":
            result = unit.execute(instruction, registers, _batch())
            logits = logits if result is None else result.copy()
    assert logits is not None
    return lowered.program, logits[:, : spec.vocab_size], pages


def _batch() -> Batch:
    count = len(_PROMPT)
    places = np.arange(count, dtype=np.int32)
    ids = np.array(_PROMPT, np.int32)
    return Batch(ids, places, np.zeros(count, np.int32), np.zeros((1, 1), np.int32), places)


@pytest.mark.parametrize("name", _MODELS)
def test_fused_and_unfused_programs_agree_in_every_bit(name: str, tmp_path: Path):
    loaded = load(write_tiny_gguf(tmp_path / "tiny.gguf", **_MODELS[name]))
    fused, logits, pages = _run(loaded, PIPELINE)
    unfused, other_logits, other_pages = _run(loaded, UNFUSED)
    assert len(fused) < len(unfused)
    assert np.isfinite(logits).all() and np.ptp(logits) > 0.1
    assert np.array_equal(logits.view(np.uint32), other_logits.view(np.uint32))
    assert np.array_equal(pages, other_pages)


@pytest.mark.parametrize("name", _MIXED)
def test_where_formats_differ_the_fusion_is_left_out(name: str, tmp_path: Path):
    loaded = load(write_tiny_gguf(tmp_path / "tiny.gguf", **_MODELS[name]))
    program, _, _ = _run(loaded, PIPELINE)
    names = {op.row.name for op in program}
    assert ("FFN" in names) != ("QKV" in names)


def test_every_pass_alone_keeps_the_bits(tiny_path: Path):
    loaded = load(tiny_path)
    _, logits, pages = _run(loaded, UNFUSED)
    quantised = PIPELINE[2:]
    for step in quantised:
        _, other, other_pages = _run(loaded, (*UNFUSED, replace(step, entry=UNFUSED[-1].exit, exit=UNFUSED[-1].exit)))
        assert np.array_equal(logits.view(np.uint32), other.view(np.uint32)), step.name
        assert np.array_equal(pages, other_pages), step.name
