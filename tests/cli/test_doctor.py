from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from unsay.cli import doctor
from unsay.cli.main import main
from unsay.compiler.codegen.backends import backends
from unsay.runtime.cpu import best_target


def report(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]]]:
    """Exit code, and the checks by name."""
    code = main(["doctor", "--json"])
    checks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return code, {str(check["name"]): check for check in checks}


def test_a_machine_that_runs_the_tests_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    code, checks = report(capsys)
    assert code == 0
    assert {
        "python",
        "numpy",
        "llvmlite",
        "cpu",
        "target",
        "cores",
        "prefill",
        "cache",
        "disk",
        "smollm2:135m",
    } <= checks.keys()


def test_every_back_end_is_listed_with_what_this_machine_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    checks = report(capsys)[1]
    assert {backend.target for backend in backends()} <= checks.keys()
    assert checks[best_target()]["found"] == "a whole step"
    assert checks["wasm32-simd128"]["found"] == "a whole step; to run here it lacks simd128"


def test_a_back_end_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("UNSAY_BACKENDS", "no_such_module")
    monkeypatch.setattr("unsay.compiler.codegen.backends._registered", set[str]())
    monkeypatch.setattr("unsay.compiler.codegen.backends._rows", {})
    code, checks = report(capsys)
    assert code == 1 and "'no_such_module'" in str(checks["targets"]["found"])


def test_what_is_missing_is_named_with_a_way_to_mend_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def without_rich(name: str) -> str:
        if name == "rich":
            raise PackageNotFoundError(name)
        return version(name)

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(doctor, "version", without_rich)
    code, checks = report(capsys)
    assert code == 1
    assert not checks["rich"]["ok"] and "pip install rich" in str(checks["rich"]["mend"])
    assert not checks["cache"]["ok"] and "UNSAY_CACHE" in str(checks["cache"]["found"])


def test_a_damaged_model_is_told_from_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from unsay import hub

    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path))
    assert "unsay pull" in str(report(capsys)[1]["smollm2:135m"]["mend"])
    path = hub.KNOWN["smollm2:135m"].path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"broken")
    code, checks = report(capsys)
    assert code == 1 and "delete it" in str(checks["smollm2:135m"]["mend"])
