"""Fixtures for every test: an image cache of the run's own, tiny random models, and the real model file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from unsay.cores import usable_cores

_USER_CACHE = os.environ.get("UNSAY_CACHE")
_IS_XDIST_WORKER = "PYTEST_XDIST_WORKER" in os.environ

TINY_VARIANTS: dict[str, dict[str, object]] = {
    "llama-q4_1": {"dtype": {"default": "Q4_1", "token_embd": "Q8_0"}},
    "llama-q4_0-d32": {"dtype": "Q4_0", "head_dim": 32, "layers": 3, "tied": False},
    "llama-q8_0-d64": {"dtype": "Q8_0", "heads": 3, "kv_heads": 1, "head_dim": 64, "layers": 1, "ffn": 96},
    "llama-f32": {"dtype": "F32", "layers": 1},
    "llama-f16-untied": {"dtype": "F16", "tied": False, "layers": 1},
    "llama-mixed": {"dtype": {"default": "Q4_1", "ffn_down": "F16", "attn_output": "BF16", "token_embd": "F16"}},
    "qwen2-q4_1": {"dtype": "Q4_1", "architecture": "qwen2", "layers": 3},
    "qwen2-bf16": {"dtype": "BF16", "architecture": "qwen2", "layers": 1, "tied": False},
}
"""Between them: every weight format, tied and untied heads, head sizes 16, 32 and 64, one to three layers, shared KV
heads, biases, and head sizes that do not multiply to the embedding."""


def pytest_configure() -> None:
    """Give the run a cache of its own, so that it neither reads nor fills the user's; workers share it.

    NumPy's matrix products get one thread, set before anything imports it: two workers with two threads each on two
    cores spin half their time away.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    if not _IS_XDIST_WORKER:
        os.environ["UNSAY_CACHE"] = tempfile.mkdtemp(prefix="unsay-test-cache-")


def pytest_unconfigure() -> None:
    """Remove the run's cache."""
    if not _IS_XDIST_WORKER:
        shutil.rmtree(os.environ["UNSAY_CACHE"], ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means: the cores there really are; at most four, each holding a gigabyte for the oracle."""
    return min(usable_cores(), 4)


@contextmanager
def user_cache() -> Iterator[None]:
    """Inside, the cache is the user's own: where a downloaded model file outlives the run."""
    ours = os.environ.pop("UNSAY_CACHE")
    if _USER_CACHE is not None:
        os.environ["UNSAY_CACHE"] = _USER_CACHE
    try:
        yield
    finally:
        os.environ["UNSAY_CACHE"] = ours


@pytest.fixture(scope="session")
def tiny_paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Path of the tiny model of each of TINY_VARIANTS."""
    from tests.tiny import write_tiny_gguf

    directory = tmp_path_factory.mktemp("tiny")
    return {
        name: write_tiny_gguf(directory / f"{name}.gguf", **options)  # type: ignore[arg-type]
        for name, options in TINY_VARIANTS.items()
    }


@pytest.fixture(scope="session")
def tiny_path(tiny_paths: dict[str, Path]) -> Path:
    """The tiny model most tests use: llama, Q4_1 with a Q8_0 embedding that is also the head, as in SmolLM2."""
    return tiny_paths["llama-q4_1"]


@pytest.fixture(scope="session")
def wide_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model whose rows have two parts and three (N15), the last one short."""
    from tests.tiny import write_tiny_gguf

    return write_tiny_gguf(tmp_path_factory.mktemp("wide") / "wide.gguf", embedding=224, ffn=416)


@pytest.fixture(scope="session", params=sorted(TINY_VARIANTS))
def tiny_variant_path(request: pytest.FixtureRequest, tiny_paths: dict[str, Path]) -> Path:
    """Each tiny model in turn."""
    return tiny_paths[request.param]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2-135M-Instruct, fetched once by unsay itself into the user's cache."""
    from unsay import hub

    with user_cache():
        return hub.resolve("smollm2:135m")
