from __future__ import annotations

import json
from pathlib import Path

import pytest

from unsay.cli.main import main


def test_a_model_not_there_is_listed_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path))
    assert main(["list"]) == 0
    assert "unsay pull smollm2:135m" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    (entry,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (entry["name"], entry["cached"], entry["bytes"]) == ("smollm2:135m", False, 98_362_432)
