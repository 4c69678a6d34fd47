from __future__ import annotations

import json
from pathlib import Path

import pytest

from unsay.cli.main import main
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse

KERNEL = Path(__file__).parent.parent / "data" / "triton" / "add.ttir"


def test_a_model_that_runs_is_shown_as_its_unfused_graph(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tiny.llmir"
    assert main(["import", str(tiny_path), "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [dim["name"] for dim in told["dims"]] == ["T", "R"] and told["inputs"] == {"tokens": "tensor<T x i32>"}
    assert told["operations"]["weight"] <= told["weights"] and told["output"] == str(out)
    verify(parse(out.read_text()))


def test_a_kernel_is_imported_for_the_launch_in_its_file_or_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(KERNEL)]) == 0
    assert "outputs  add: tensor<1000 x f32>" in capsys.readouterr().out
    small = "tensor<10 x 20 x f32>"
    assert main(["import", str(KERNEL), "--launch", f"launch({small}, {small}, {small}, 200) grid(1)", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["inputs"] == {"arg0": small, "arg1": small}


def test_what_is_wrong_with_a_kernel_is_told_with_file_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.ttir"
    bad.write_text(KERNEL.read_text().replace('"arith.addf"', '"arith.remf"'))
    assert main(["import", str(bad)]) == 1
    assert (
        "bad.ttir: 1 of its operations cannot be imported\n  22:11: arith.remf: no rule for it"
        in capsys.readouterr().err
    )
    bad.write_text(KERNEL.read_text().replace("%arg3: i32", "%arg3 i32"))
    assert main(["import", str(bad)]) == 1
    assert f"{bad}:5:" in capsys.readouterr().err
    for arguments, message in (
        ([str(KERNEL), "--dim", "N=4"], "--dim is for ONNX models"),
        ([str(KERNEL), "--launch", "twice"], "is not a launch"),
    ):
        assert main(["import", *arguments]) == 1
        assert message in capsys.readouterr().err
