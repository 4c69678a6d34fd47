"""unsay verify: the table, what it is of, and what a refused graph looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unsay.cli.main import main
from unsay.compiler.passes import pipeline
from unsay.compiler.passes.pipeline import PIPELINE, TENSOR_PIPELINE, Pass
from unsay.compiler.verify import kernels
from unsay.compiler.verify.obligation import Obligation, Result, Status

_DATA = Path(__file__).parents[1] / "data"
_GRAPH = """graph g(T: 1..8) {
  %x = input() {name = "x"} : tensor<T x 32 x f32>
  %w = weight() {tensor = "w"} : tensor<32 x 16 x f32>
  %a = matmul(%x, %w) : tensor<T x 16 x f32>
  %y = silu(%a) : tensor<T x 16 x f32>
  output(%y)
}
"""


def _rows(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, list[dict[str, object]]]:
    code = main(["verify", *map(str, argv), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.llmir"
    path.write_text(_GRAPH)
    return path


def test_a_graph_of_text_is_verified_by_its_pipeline(capsys: pytest.CaptureFixture[str], graph: Path):
    code, rows = _rows(capsys, graph)
    assert code == 0
    assert [row["obligation"] for row in rows if row["tier"] == "T1"] == [step.name for step in TENSOR_PIPELINE]
    assert [row["obligation"] for row in rows if row["tier"] == "T0"] == [
        "sizes there are",
        "sizes fit in 5 operations",
    ]
    assert {row["status"] for row in rows} == {"proved"}


@pytest.mark.parametrize("name", ["onnx/cnn.onnx", "triton/softmax.ttir"])
def test_what_is_imported_is_verified_by_its_pipeline(capsys: pytest.CaptureFixture[str], name: str):
    code, rows = _rows(capsys, _DATA / name)
    assert (code, {row["status"] for row in rows}) == (0, {"proved"})
    assert [row["obligation"] for row in rows if row["tier"] == "T1"] == [step.name for step in TENSOR_PIPELINE]


def test_a_graph_in_mlir_is_verified_as_its_text_is(capsys: pytest.CaptureFixture[str], graph: Path):
    twin = graph.with_suffix(".mlir")
    assert main(["opt", str(graph), "-o", str(twin)]) == 0
    assert [row["detail"] for row in _rows(capsys, twin)[1]] == [row["detail"] for row in _rows(capsys, graph)[1]]


def test_only_the_pass_named_is_run(capsys: pytest.CaptureFixture[str], graph: Path):
    code, rows = _rows(capsys, graph, "--pass", "fuse_gemm_bias_silu")
    (row,) = [row for row in rows if row["tier"] == "T1"]
    assert (code, row["method"], row["detail"]) == (0, "QF_UF", "1 instances, keeps bits")


def test_the_axioms_of_a_pass_are_proved_without_a_model(capsys: pytest.CaptureFixture[str]):
    code = main(["verify", "--pass", "fuse_residual"])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0].split() == ["tier", "obligation", "method", "result", "seconds"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["T2", "linear-add"], ["T3", "linear-add"], ["T2", "add-commutes"], ["T3", "add-commutes"],
    ]  # fmt: skip


def test_a_pass_without_axioms_is_named(capsys: pytest.CaptureFixture[str]):
    assert main(["verify", "--pass", "cse"]) == 1
    assert "pass 'cse' relies on no axiom; these do: pair_rope_rows" in capsys.readouterr().err


def test_the_passes_of_a_model_and_its_program_are_verified(
    capsys: pytest.CaptureFixture[str], tiny_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def of_program(program, spec, target, arena_bytes) -> list[Obligation]:
        assert arena_bytes > 0 and spec.num_layers == 2
        return [Obligation(f"{target}: {[*program][-1].row.name}", "T4", "none", lambda: Result(Status.PROVED))]

    monkeypatch.setattr(kernels, "model_obligations", of_program)
    code, rows = _rows(capsys, tiny_path, "--target", "x86-64-v3")
    assert code == 0, [row for row in rows if row["status"] != "proved"]
    assert [row["obligation"] for row in rows if row["tier"] == "T1"] == [step.name for step in PIPELINE]
    assert [row["tier"] for row in rows[:2]] == ["T0", "T0"]
    assert rows[-1]["obligation"] == "x86-64-v3: HALT"


def test_a_refuted_pass_ends_with_code_1_and_shows_why(
    capsys: pytest.CaptureFixture[str], graph: Path, monkeypatch: pytest.MonkeyPatch
):
    def fuse_gemm_bias_silu(graph) -> int:
        silu = graph.operations[3]
        graph.substitute(silu, silu.operands)
        return 1

    monkeypatch.setitem(pipeline.BY_NAME, "fuse_gemm_bias_silu", Pass(fuse_gemm_bias_silu))
    assert main(["verify", str(graph), "--pass", "fuse_gemm_bias_silu"]) == 1
    out = capsys.readouterr().out
    assert "refuted" in out
    assert "silu(" in out and "at T = 2, element [0, 0] is " in out
