"""unsay verify: the table, what it is of, and what a refused graph looks like."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compiler.extension import acme
from unsay.cli.main import main
from unsay.compiler.codegen.backends import Emitted, Step
from unsay.compiler.codegen.cpu import CpuEmitter
from unsay.compiler.passes import pipeline
from unsay.compiler.passes.pipeline import PIPELINE, TENSOR_PIPELINE, Pass
from unsay.compiler.verify import kernels
from unsay.compiler.verify.kernels import StepClaims
from unsay.compiler.verify.kernels.coverage import Gap
from unsay.compiler.verify.obligation import Obligation, Result, Status
from unsay.errors import TargetError

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


def _claims_that_name(step: Step, target: str) -> StepClaims:
    """What the step of a tiny model is, as a claim and as two gaps."""
    assert step.scratch_offset > 0 and step.spec.num_layers == 2
    programs = 1 if step.fast is None else 2
    name = f"{programs} for {target}, {step.spec.kv_format}"
    claim = Obligation(name, "T4", "none", lambda: Result(Status.PROVED))
    return StepClaims([claim], [Gap("computation", 3, ("merge", "step")), Gap("anything", 3, ("barrier",))])


@pytest.fixture
def only_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "step_claims", _claims_that_name)


@pytest.mark.usefixtures("only_named")
def test_the_passes_of_a_model_and_its_step_are_verified(capsys: pytest.CaptureFixture[str], tiny_path: Path):
    code, rows = _rows(capsys, tiny_path, "--target", "avx2")
    proofs = [row for row in rows if "status" in row]
    assert code == 0 and {row["status"] for row in proofs} == {"proved"}
    assert [row["obligation"] for row in proofs if row["tier"] == "T1"] == [step.name for step in PIPELINE]
    assert [row["tier"] for row in rows[:2]] == ["T0", "T0"]
    assert proofs[-1]["obligation"] == "1 for avx2, f16"


@pytest.mark.usefixtures("only_named")
def test_the_step_is_the_one_that_other_commands_run_with_these_options(
    capsys: pytest.CaptureFixture[str], tiny_path: Path
):
    options = ("--target", "avx2", "--kv", "int8", "--prefill", "fast")
    code, rows = _rows(capsys, tiny_path, *options)
    assert code == 0 and [row["obligation"] for row in rows if row.get("tier") == "T4"] == ["2 for avx2, int8"]


def test_the_step_that_is_proved_is_the_one_an_image_is_made_of(
    capsys: pytest.CaptureFixture[str], tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    steps: list[Step] = []

    def noted(step: Step, target: str) -> StepClaims:
        steps.append(step)
        return _claims_that_name(step, target)

    def emit(_self: CpuEmitter, step: Step) -> Emitted:
        steps.append(step)
        raise TargetError("that is all")

    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels, "step_claims", noted)
    monkeypatch.setattr(CpuEmitter, "emit", emit)
    options = ("--target", "avx2", "--kv", "int8", "--prefill", "fast")
    assert main(["verify", str(tiny_path), *options]) == 0
    assert main(["compile", str(tiny_path), *options]) == 1 and "that is all" in capsys.readouterr().err
    proved, compiled = steps
    assert proved == compiled and proved.fast is not None


@pytest.mark.usefixtures("only_named")
def test_what_is_not_proved_is_named_and_counted(capsys: pytest.CaptureFixture[str], tiny_path: Path):
    _, rows = _rows(capsys, tiny_path, "--target", "avx2")
    assert rows[-2:] == [
        {"not_proved": "computation", "functions": ["merge", "step"], "count": 2, "of": 3},
        {"not_proved": "anything", "functions": ["barrier"], "count": 1, "of": 3},
    ]
    assert main(["verify", str(tiny_path), "--target", "avx2"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "not proved: what 2 of the step's 3 functions compute (their accesses are): merge, step",
        "not proved: anything of 1 of the step's 3 functions: barrier",
    ]


def test_a_pass_of_an_extension_is_proved_on_a_graph_and_its_axioms_without(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    path = tmp_path / "in.llmir"
    path.write_text(acme.CASE)
    options = ("--extension", acme.__name__, "--pass", "acme_fuse_relu")
    code, rows = _rows(capsys, path, *options)
    assert code == 0 and [row["obligation"] for row in rows if row["tier"] == "T1"] == ["acme_fuse_relu"]
    code, rows = _rows(capsys, *options)
    assert code == 0 and [(row["tier"], row["status"]) for row in rows] == [("T2", "proved"), ("T3", "proved")]


def test_an_extension_is_refused_where_it_changes_nothing(capsys: pytest.CaptureFixture[str], tiny_path: Path):
    for subject in ([], [str(tiny_path)]):
        assert main(["verify", *subject, "--extension", acme.__name__]) == 1
        assert "name a FILE or a --pass" in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--kv", "int8"), ("--prefill", "fast")])
def test_options_of_a_model_are_refused_for_anything_else(
    capsys: pytest.CaptureFixture[str], graph: Path, options: tuple[str, str]
):
    for subject in ([], [str(graph)]):
        assert main(["verify", *subject, *options]) == 1
        assert "name a MODEL" in capsys.readouterr().err


def test_a_target_whose_kernels_no_proof_follows_is_refused(capsys: pytest.CaptureFixture[str], tiny_path: Path):
    assert main(["verify", str(tiny_path), "--target", "ptx"]) == 1
    assert "kernels of ptx are not proved; name one of amx-int8, " in capsys.readouterr().err


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
