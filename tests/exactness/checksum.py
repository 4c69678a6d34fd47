"""One number for the logits of 2,000 tokens: what every target, executor and way to cut them into steps must come to.

A CPU nobody had when the number was written down is held to the same: tests/exactness/test_checksum.py runs on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.images import make_batch
from tests.tiny import TinyShape, tiny_vocabulary, tiny_weights, write_tiny_gguf
from unsay.compiler.compile import compile_model
from unsay.core import PAGE_TOKENS, Batch, Float32View
from unsay.default_target import check_runs_here
from unsay.errors import TargetError
from unsay.isa.classes import FAST
from unsay.isa.targets import TARGETS
from unsay.runtime.image import Image, load_image

_NUM_TOKENS = 2000
_NUM_PAGES = -(-_NUM_TOKENS // PAGE_TOKENS)

_SHAPE = TinyShape(layers=1, embedding=64, heads=3, kv_heads=1, head_dim=32, ffn=96, context_length=2048)
_DTYPE = {"default": "Q4_1", "token_embd": "Q8_0", "ffn_down": "Q4_0"}

Run = Callable[[Batch], Sequence[Float32View] | None]
"""A step, as executors do it."""


class Kind(NamedTuple):
    """options: of `compile_model`. sha256: of all logits, f32 [2000][V]."""

    options: dict[str, Any]
    sha256: str


KINDS = {
    "f16 pages": Kind({}, "fcfdaa548c1f71b45d491e3495f430de578fd3f295465be381795ff5cd2b984d"),
    "int8 pages": Kind({"kv": "int8"}, "e9fdd510f953a8210469eb3b14f95ac01f048452122fb31a4c96dce5e96d8221"),
    "f32 pages": Kind({"kv": "f32"}, "f20da80e72622b7afdb4837993a7be62b8db88ea295751e73b2e89b2ce776c57"),
    "fast class": Kind({"prefill": FAST}, "49c10344b58b836553a51f396276b491d157a7342693a08aa545119eac5c0656"),
    "fast class, int8 pages": Kind(
        {"prefill": FAST, "kv": "int8"}, "1b5b305d28fbdc3880101654316104e6d6bbd64135b1141de83f975b6814c576"
    ),
}
_WEIGHTS_SHA256 = "77566d76a69b3ed93f21dd2ba8059c8e284358712846e5c30c532be9d5f3d5b2"
"""Of the model's weights before they are quantised."""


def write_model(path: Path) -> Path:
    """The model; its weights are those the numbers above were made with."""
    vocab_size = len(tiny_vocabulary()[0])
    weights = tiny_weights(_SHAPE, vocab_size, "llama", tied=True, seed=0)
    made = hashlib.sha256(b"".join(tensor.tobytes() for tensor in weights.values())).hexdigest()
    assert made == _WEIGHTS_SHA256, f"this NumPy draws other random weights ({made}): nothing can be said of logits"
    return write_tiny_gguf(path, dtype=_DTYPE, **asdict(_SHAPE))


def targets_here() -> list[str]:
    """All that this CPU runs."""
    return [target.name for target in TARGETS if _runs_here(target.name)]


def _runs_here(target: str) -> bool:
    try:
        check_runs_here(target)
    except TargetError:
        return False
    return True


def image_of(model: Path, kind: str, target: str) -> Image:
    """The model compiled for a target."""
    return load_image(compile_model(model, target=target, **KINDS[kind].options))


def empty_pages(image: Image) -> np.ndarray:
    """Room for all tokens: uint8 [pages, page_bytes]."""
    return np.zeros((_NUM_PAGES, image.manifest.spec.kv_layout.page_bytes), np.uint8)


def checksum(run: Run, image: Image, chunk: int) -> str:
    """SHA-256 of the logits that steps of `chunk` tokens give, in the fast class if the image has it."""
    digest = hashlib.sha256()
    for batch in _steps(image.manifest.spec.vocab_size, chunk):
        logits = run(batch._replace(is_fast=image.fast is not None))
        assert logits is not None
        for row in logits:
            digest.update(np.ascontiguousarray(row, np.float32).tobytes())
    return digest.hexdigest()


def _steps(vocab_size: int, chunk: int) -> Iterator[Batch]:
    ids = [(7 * place * place + 3 * place + 11) % vocab_size for place in range(_NUM_TOKENS)]
    for start in range(0, _NUM_TOKENS, chunk):
        some = ids[start : start + chunk]
        yield make_batch([(start, some)], [range(_NUM_PAGES)], range(len(some)))
