"""No file of a stranger does harm: it is imported, or it is an error of ours."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.compiler.frontend.hostile_onnx import HOSTILE, small, with_tensor
from tests.compiler.frontend.onnx_bytes import external
from unsay.compiler.frontend.onnx import import_onnx
from unsay.errors import ModelFileError, ModelNotFoundError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with data beside the model, and a secret outside that a link leads to."""
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    inside = tmp_path / "models"
    inside.mkdir()
    (inside / "data.bin").write_bytes(bytes(32))
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    return inside


def load(directory: Path, raw: bytes) -> None:
    path = directory / "model.onnx"
    path.write_bytes(raw)
    import_onnx(path)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_its_name(directory: Path, name: str) -> None:
    with pytest.raises(ModelFileError, match=r"model\.onnx"):
        load(directory, HOSTILE[name])


def test_data_inside_the_directory_is_read(directory: Path) -> None:
    load(directory, with_tensor(external("w", [2, 3], location="data.bin", offset="8", length="24")))


def test_every_file_cut_short_is_refused_or_whole(directory: Path) -> None:
    raw = small()
    load(directory, raw)
    for length in range(len(raw)):
        with pytest.raises(ModelFileError):
            load(directory, raw[:length])


def test_a_file_with_bytes_overwritten_is_imported_or_refused(directory: Path) -> None:
    raw, chance = small(), random.Random(3)
    refused = 0
    for _ in range(300):
        damaged = bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            load(directory, bytes(damaged))
        except ModelFileError:
            refused += 1
    assert 50 < refused < 300


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="nothing"):
        import_onnx(tmp_path / "nothing.onnx")
    with pytest.raises(ModelFileError):
        import_onnx(tmp_path)
