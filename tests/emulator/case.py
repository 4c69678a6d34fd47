"""One step of a tiny model: its memory before, what the reference leaves, and its code for any target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.images import run
from unsay.compiler.codegen.backends import Code, Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.codegen.translate import compile_module
from unsay.compiler.compile import compile_model
from unsay.compiler.limits import LIMITS
from unsay.core import PAGE_TOKENS, Batch
from unsay.image import ModelSpec
from unsay.isa.abi import sync_bytes
from unsay.isa.classes import EXACT, FAST
from unsay.isa.formats import padded_rows
from unsay.isa.scan import RowDraw, RowSeen, seen_bytes
from unsay.isa.targets import Target
from unsay.runtime.defined_scan import DefinedScan, look
from unsay.runtime.image import Image, load_image
from unsay.runtime.reference import ReferenceExecutor
from unsay.runtime.scan import Draw, Glance


@dataclass(frozen=True)
class Case:
    """arrays: one per pointer field of StepArgs; counts: its integer fields. logits, pages: the reference's; glances:
    what the definition says of the logits."""

    image: Image
    arrays: dict[str, np.ndarray]
    counts: dict[str, int]
    logits: np.ndarray
    pages: np.ndarray
    glances: list[Glance]

    def code(self, target: Target) -> Code:
        """`step_code` of the image."""
        return step_code(self.image, target)

    def assert_equal(self, result: int, after: dict[str, np.ndarray]) -> None:
        """The step ran to its end, left the reference's logits and KV pages, bit for bit, and noted the same."""
        assert result == 0
        got = np.ascontiguousarray(after["logits"][:, : self.image.manifest.spec.vocab_size])
        np.testing.assert_array_equal(got.view(np.int32), self.logits.view(np.int32))
        np.testing.assert_array_equal(after["kv_pool"], self.pages)
        noted = [RowSeen.from_buffer_copy(row.tobytes()) for row in after["seen"]]
        assert [Glance(*(getattr(row, name) for name in Glance._fields)) for row in noted] == self.glances


def step_code(image: Image, target: Target) -> Code:
    """The step's machine code, compiled apart from the image: a test may change the target."""
    manifest = image.manifest
    own = step_scratch(manifest.spec, manifest.max_tokens).num_bytes
    sizes = (manifest.max_tokens, LIMITS.max_rows, manifest.max_threads)
    step = Step(image.program, manifest.spec, *sizes, manifest.arena_bytes - own, image.fast)
    return Code(*compile_module(step_text(step, dot_unit(target)), target))


def make_case(model: Path, *, decode: bool = False, kv: str = "auto", prefill: str = EXACT) -> Case:
    """The model, two sequences, and what the reference makes of them: their prompts, or a token each after many.

    prefill: the class of the tokens, in an image that has a step of it.
    """
    image = load_image(compile_model(model, target="avx2", kv=kv, prefill=prefill))
    spec = image.manifest.spec
    batch = _decode(spec.vocab_size) if decode else _prompts(spec.vocab_size)
    batch = batch._replace(is_fast=prefill == FAST)
    before = _pages(batch.page_tables.max() + 1, spec) if decode else np.zeros((4, spec.kv_layout.page_bytes), np.uint8)
    after = before.copy()
    logits = run(ReferenceExecutor(image, after, 1), batch)
    assert logits is not None
    draws = [Draw(0.0, 1 / 0.7, 2**40 + row, 50 + row) for row in range(len(logits))]
    glances = [look(DefinedScan(), row, draw) for row, draw in zip(logits, draws, strict=True)]
    return Case(image, *step_memory(image, batch, before, draws), np.ascontiguousarray(logits), after, glances)


def step_memory(
    image: Image, batch: Batch, pages: np.ndarray, draws: Sequence[Draw] = ()
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """`Case.arrays` and `Case.counts` of a step on one thread that has these pages. draws: for its rows, or none."""
    spec, num_rows = image.manifest.spec, len(batch.logit_rows)
    asked = [RowDraw(draw.inverse, draw.seed & 0xFFFFFFFF, draw.seed >> 32, draw.position) for draw in draws]
    arrays = {
        "persistent": np.asarray(image.weights),
        "arena": np.zeros(image.manifest.arena_bytes, np.uint8),
        "kv_pool": pages,
        "logits": np.zeros((num_rows, padded_rows(spec.vocab_size)), np.float32),
        "token_ids": batch.token_ids,
        "positions": batch.positions,
        "sequence": batch.sequence,
        "page_tables": batch.page_tables,
        "logit_rows": batch.logit_rows,
        "interrupt": np.zeros(16, np.int32),
        "sync": np.zeros(sync_bytes(LIMITS.max_threads), np.uint8),
        "draws": np.frombuffer(b"".join(map(bytes, asked)), np.uint8),
        "seen": np.zeros((num_rows, seen_bytes(spec.vocab_size)), np.uint8),
    }
    counts = {
        "num_tokens": len(batch.token_ids),
        "num_sequences": len(batch.page_tables),
        "num_rows": num_rows,
        "page_stride": batch.page_tables.shape[1],
        "num_threads": 1,
        "num_seen": len(draws),
        "is_fast": int(batch.is_fast),
    }
    return arrays, counts


def _prompts(vocab_size: int) -> Batch:
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


def _decode(vocab_size: int) -> Batch:
    """A token each at 530 (three parts of attention) and at 17."""
    positions = np.array([530, 17], np.int32)
    tables = np.full((2, 34), -1, np.int32)
    tables[0], tables[1, :2] = np.arange(34), (35, 34)
    return Batch(
        token_ids=np.array([7, vocab_size - 1], np.int32),
        positions=positions,
        sequence=np.array([0, 1], np.int32),
        page_tables=tables,
        logit_rows=np.array([0, 1], np.int32),
    )


def _pages(count: int, spec: ModelSpec) -> np.ndarray:
    """Pages full of small halves, whose bytes are int8 and scales of any size too."""
    halves = np.random.default_rng(6).standard_normal((count, spec.kv_layout.page_bytes // 2))
    return halves.astype(np.float16).view(np.uint8)
