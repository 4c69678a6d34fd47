"""The logits of 2,000 tokens have the checksum of tests/exactness on CPUs that only emulators have here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emulator import node, qemu
from tests.emulator.amx import tiles
from tests.emulator.bochs import ON_BOCHS, find_bochs, make_rom, run_step
from tests.emulator.case import step_code, step_memory
from tests.exactness.checksum import KINDS, Run, checksum, empty_pages, image_of, write_model
from unsay.core import Batch
from unsay.isa.targets import Target, find_target
from unsay.runtime.image import Image
from unsay.runtime.native import NativeExecutor

Step = Callable[[dict[str, np.ndarray], dict[str, int]], tuple[int, dict[str, np.ndarray]]]
"""A step on an emulator, of `step_memory`: its result, and the arrays as it left them."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("checksum") / "model.gguf")


def emulated(image: Image, step: Step) -> Run:
    """Steps one after the other, each with the pages of those before."""
    pages = empty_pages(image)

    def run(batch: Batch) -> list[memoryview]:
        result, after = step(*step_memory(image, batch, pages))
        assert result == 0
        pages[:] = after["kv_pool"]
        return [row.data for row in after["logits"][:, : image.manifest.spec.vocab_size]]

    return run


@pytest.mark.parametrize(
    ("target", "kind"),
    [("avx512-vnni", "f32 pages"), ("avx512-vnni", "fast class, int8 pages"), ("avx-vnni", "int8 pages")],
)
def test_x86(target: str, kind: str, model: Path, tmp_path: Path) -> None:
    """No f16 pages: Bochs 2.7 rounds halves of vcvtps2ph up, where IEEE 754 and CPUs round them to even."""
    image, bochs, rom = image_of(model, kind, "avx2"), find_bochs(), make_rom()
    code = step_code(image, ON_BOCHS[target])
    run = emulated(image, lambda *memory: run_step(bochs, rom, code.blob, code.entry["step"], *memory, tmp_path))
    assert checksum(run, image, 64) == KINDS[kind].sha256


@pytest.mark.parametrize(
    ("target", "kind"), [("aarch64-dotprod", "f16 pages"), ("aarch64-i8mm", "fast class, int8 pages")]
)
def test_aarch64(target: str, kind: str, model: Path, tmp_path: Path) -> None:
    image, start, program = image_of(model, kind, "avx2"), qemu.start_code(), qemu.find_qemu()
    code = step_code(image, find_target(target))
    run = emulated(image, lambda *memory: qemu.run_step(program, start, code, *memory, tmp_path))
    assert checksum(run, image, 64) == KINDS[kind].sha256


@pytest.mark.parametrize("kind", ["f16 pages", "fast class, int8 pages"])
def test_webassembly(kind: str, model: Path, tmp_path: Path) -> None:
    image, program = image_of(model, kind, "avx2"), node.find_node()
    code = step_code(image, find_target("wasm32-simd128"))
    run = emulated(image, lambda *memory: node.run_step(program, code, *memory, tmp_path))
    assert checksum(run, image, 64) == KINDS[kind].sha256


@pytest.mark.parametrize("kind", ["int8 pages", "fast class, int8 pages"])
def test_tiles(kind: str, model: Path, with_tiles: Target) -> None:
    image = image_of(model, kind, with_tiles.name)
    with tiles() as done:
        executor = NativeExecutor(image, empty_pages(image).data, 2)
        assert checksum(executor.run, image, 12) == KINDS[kind].sha256
        executor.close()
        assert not done.is_emulated or done.counts().products > 0
