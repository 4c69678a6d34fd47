"""The logits of 2,000 tokens have one checksum on every target this CPU runs, by the definition, and in any steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exactness.checksum import KINDS, checksum, empty_pages, image_of, targets_here, write_model
from unsay.default_target import default_target
from unsay.runtime.native import NativeExecutor
from unsay.runtime.reference import ReferenceExecutor


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("checksum") / "model.gguf")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", targets_here())
def test_machine_code_has_it_in_steps_of_any_size(target: str, kind: str, model: Path) -> None:
    image = image_of(model, kind, target)
    found = {}
    for chunk, num_threads in ((1, 1), (5, 2), (11, 3), (12, 2), (64, 2)):
        executor = NativeExecutor(image, empty_pages(image).data, num_threads)
        found[chunk, num_threads] = checksum(executor.run, image, chunk)
        executor.close()
    assert found == dict.fromkeys(found, KINDS[kind].sha256)


@pytest.mark.parametrize("kind", KINDS)
def test_the_definition_has_it(kind: str, model: Path) -> None:
    image = image_of(model, kind, default_target())
    executor = ReferenceExecutor(image, empty_pages(image), 1)
    assert checksum(executor.run, image, 64) == KINDS[kind].sha256
