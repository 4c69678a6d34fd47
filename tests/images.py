"""An image without machine code, in memory: what the reference and null executors need, and nothing of codegen."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from numpy.typing import ArrayLike

from unsay.compiler.limits import LIMITS
from unsay.compiler.lower import lower
from unsay.compiler.pack import write_packed
from unsay.compiler.passes import run_passes
from unsay.compiler.pipeline import load, to_graph
from unsay.core import Batch, Float32Array
from unsay.image import IMAGE_VERSION, Manifest


def plain_image(path: Path) -> SimpleNamespace:
    """Load, build, fuse, lower and pack a model file; the executors that need no code run the result."""
    loaded = load(path)
    graph = to_graph(loaded)
    run_passes(graph)
    lowered = lower(graph, loaded.spec, LIMITS.max_tokens, LIMITS.max_rows)
    packed = io.BytesIO()
    write_packed(lowered.plan, loaded.file, packed)
    weights = np.frombuffer(packed.getvalue(), np.uint8)
    manifest = Manifest(
        version=IMAGE_VERSION,
        spec=loaded.spec,
        target="none",
        source_sha256="",
        weights="",
        weights_bytes=len(weights),
        arena_bytes=lowered.arena_bytes,
        max_tokens=LIMITS.max_tokens,
        max_threads=LIMITS.max_threads,
        entry={},
    )
    return SimpleNamespace(manifest=manifest, program=lowered.program, fast=None, weights=weights)


def run(executor, batch: Batch) -> Float32Array | None:
    """The logits [R, V] of a step, copied; None if it was interrupted."""
    rows = executor.run(batch)
    return None if rows is None else np.array(rows, np.float32)


def make_batch(
    sequences: Sequence[tuple[int, Sequence[int]]], page_tables: ArrayLike, logit_rows: Sequence[int]
) -> Batch:
    """A batch from (first position, token ids) of each sequence."""
    token_ids = [token for _, ids in sequences for token in ids]
    positions = [start + index for start, ids in sequences for index in range(len(ids))]
    sequence = [row for row, (_, ids) in enumerate(sequences) for _ in ids]
    return Batch(*(np.array(x, np.int32) for x in (token_ids, positions, sequence, page_tables, logit_rows)))
