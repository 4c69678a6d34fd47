from __future__ import annotations

import json
from pathlib import Path

import pytest

from unsay.cli.main import main


def test_a_compiled_model_is_found_by_the_next_start(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(tiny_path), "--target", "avx2", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (Path(first["image"]) / "manifest.json").exists() and first["target"] == "avx2"
    assert main(["compile", str(tiny_path), "--target", "avx2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["image"] == first["image"]


def test_an_unknown_target_is_refused(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(tiny_path), "--target", "z80"]) == 1
    assert "avx2" in capsys.readouterr().err
