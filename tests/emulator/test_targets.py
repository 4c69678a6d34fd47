"""The machine code of targets this CPU may lack, executed on an emulated one: the same bits as the reference."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.bochs import find_bochs, run_step
from unsay.compiler.codegen import llvm
from unsay.compiler.codegen.elf import link
from unsay.compiler.codegen.emit import Code, scratch_bytes, step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.compile import compile_model
from unsay.compiler.limits import LIMITS
from unsay.core import PAGE_TOKENS, Batch
from unsay.isa.formats import padded_rows
from unsay.isa.targets import Target, find_target
from unsay.runtime.image import Image, load_image
from unsay.runtime.reference import ReferenceExecutor

_ON_EMULATOR = {
    "avx512-vnni": find_target("avx512-vnni"),
    # The emulated CPU has vpdpbusd on 32-byte registers in its AVX-512 (EVEX) form only: same operation, same text.
    "avx-vnni": dataclasses.replace(
        find_target("avx-vnni"), llvm_cpu="x86-64-v4", llvm_features="+avx512vnni,+prefer-256-bit,-avxvnni"
    ),
    "avx2": find_target("avx2"),
}


@pytest.fixture(scope="session")
def bochs() -> Path:
    return find_bochs()


@pytest.fixture(scope="session")
def rom() -> bytes:
    """boot.s, assembled by LLVM."""
    lines = [line.split("#")[0].rstrip() for line in (Path(__file__).parent / "boot.s").read_text().splitlines()]
    quoted = [json.dumps(line) for line in lines if line]
    target = find_target("avx2")
    text = f'target triple = "{target.triple}"\n' + "\n".join(f"module asm {line}" for line in quoted)
    blob, _ = llvm.compile_module(text, target)
    return blob


@pytest.mark.parametrize("variant", ["llama-q4_1", "llama-q4_0-d32", "llama-q8_0-d64", "llama-f16-untied"])
@pytest.mark.parametrize("target", sorted(_ON_EMULATOR))
def test_target_gives_the_bits_of_the_reference(
    target: str, variant: str, tiny_paths: dict[str, Path], bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    image = load_image(compile_model(tiny_paths[variant], target="avx2"))
    spec = image.manifest.spec
    batch = _batch(spec.vocab_size)
    pages = np.zeros((4, spec.kv_layout.page_bytes), np.uint8)
    wanted = ReferenceExecutor(image, pages, 1).run(batch)
    assert wanted is not None

    code = _code_for(_ON_EMULATOR[target], image)
    memory = np.zeros_like(pages)
    arrays = {
        "persistent": np.asarray(image.weights),
        "arena": np.zeros(image.manifest.arena_bytes, np.uint8),
        "kv_pool": memory,
        "logits": np.zeros((len(batch.logit_rows), padded_rows(spec.vocab_size)), np.float32),
        "token_ids": batch.token_ids,
        "positions": batch.positions,
        "sequence": batch.sequence,
        "page_tables": batch.page_tables,
        "logit_rows": batch.logit_rows,
        "interrupt": np.zeros(16, np.int32),
        "sync": np.zeros(256, np.uint8),
    }
    counts = {
        "num_tokens": len(batch.token_ids),
        "num_sequences": len(batch.page_tables),
        "num_rows": len(batch.logit_rows),
        "page_stride": batch.page_tables.shape[1],
        "num_threads": 1,
    }
    result, after = run_step(bochs, rom, code.blob, code.entry["step"], arrays, counts, tmp_path)

    assert result == 0
    got = after["logits"][:, : spec.vocab_size]
    np.testing.assert_array_equal(got.view(np.int32), np.ascontiguousarray(wanted).view(np.int32))
    np.testing.assert_array_equal(after["kv_pool"], pages)


def _batch(vocab_size: int) -> Batch:
    """Two sequences, of 18 tokens (two pages) and of 3."""
    lengths = (PAGE_TOKENS + 2, 3)
    ids = np.random.default_rng(5).integers(0, vocab_size, sum(lengths))
    return Batch(
        token_ids=ids.astype(np.int32),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        sequence=np.repeat(np.arange(2, dtype=np.int32), lengths),
        page_tables=np.array([[2, 0], [1, -1]], np.int32),
        logit_rows=np.array([5, lengths[0] - 1, sum(lengths) - 1], np.int32),
    )


def _code_for(target: Target, image: Image) -> Code:
    manifest = image.manifest
    scratch = manifest.arena_bytes - scratch_bytes(manifest.spec, manifest.max_tokens, manifest.max_threads)
    sizes = (manifest.max_tokens, LIMITS.max_rows, manifest.max_threads)
    text = step_text(image.program, manifest.spec, dot_unit(target), *sizes, scratch)
    return Code(*link(llvm.object_code(text, target)))
