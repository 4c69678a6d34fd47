"""unsay opt: passes by name on LLMIR text, and errors that say where in the file."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.compiler.extension import acme
from unsay.cli.main import main
from unsay.compiler.ir.parser import parse
from unsay.compiler.passes.pipeline import BY_NAME

_TEXT = """graph g(T: 1..8, R: 1..2) {
  %x = weight() {tensor = "x"} : tensor<T x 32 x f32>
  %a = silu(%x) : tensor<T x 32 x f32>
  %b = silu(%x) : tensor<T x 32 x f32>
  %c = add(%a, %b) : tensor<T x 32 x f32>
  %unread = silu(%c) : tensor<T x 32 x f32>
  %rows = select_rows(%c) : tensor<R x 32 x f32>
  output(%rows)
}
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.llmir"
    path.write_text(_TEXT)
    return path


def _unsay(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = main([str(word) for word in argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_passes_run_in_order_and_the_graph_is_written(source: Path, tmp_path: Path, capsys):
    code, out, err = _unsay(capsys, "opt", source, "--passes", "cse,dce", "-o", tmp_path / "out.llmir")
    assert (code, out) == (0, "") and err.splitlines() == [f"{name}: 1, proved: keeps bits" for name in ("cse", "dce")]
    kinds = [operation.kind for operation in parse((tmp_path / "out.llmir").read_text()).operations]
    assert kinds == ["weight", "silu", "add", "select_rows", "output"]


def test_without_a_file_to_write_the_text_is_printed(source: Path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(_TEXT))
    code, out, _ = _unsay(capsys, "opt", "-")
    assert code == 0 and out == _TEXT
    code, out, _ = _unsay(capsys, "opt", source, "--passes", "dce", "--print-after", "dce")
    after, result = out.split("graph g")[1:]
    assert code == 0 and after == result and out.startswith("// after dce: 1 rewrites\n")


def test_json_says_what_each_pass_did(source: Path, capsys):
    code, out, _ = _unsay(capsys, "opt", source, "--passes", "cse", "--json")
    report = json.loads(out)
    proof = {"status": "proved", "method": "same terms", "keeps": "bits"}
    assert report["passes"] == [{"pass": "cse", "rewrites": 1, **proof}]
    assert code == 0 and "%unread" in report["graph"]


def test_the_memory_plan_is_a_table_or_json(source: Path, capsys):
    code, out, _ = _unsay(capsys, "opt", source, "--passes", "plan_memory", "--plan")
    assert code == 0 and out.splitlines()[0] == "g, cpu: 3072 bytes" and "operation 1..3" in out
    code, out, _ = _unsay(capsys, "opt", source, "--passes", "plan_memory", "--plan", "--json")
    plan = json.loads(out)["plan"]
    assert code == 0 and plan["arena_bytes"] == {"cpu": 3072} and plan["values"][0]["num_bytes"] == 1024
    code, _, err = _unsay(capsys, "opt", source, "--plan")
    assert code == 1 and "run plan_memory" in err and ":3:3:" in err


def test_the_list_has_every_pass_and_the_pipelines(capsys):
    code, out, _ = _unsay(capsys, "opt", "--list", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and {row["pass"] for row in rows if "pass" in row} == BY_NAME.keys()
    assert {row["pipeline"] for row in rows if "pipeline" in row} == {"step", "tensor"}
    code, out, _ = _unsay(capsys, "opt", "--list")
    assert code == 0 and "Merges operations that compute the same thing." in out


@pytest.mark.parametrize(
    ("text", "passes", "message"),
    [
        ("graph g() {\n  %x = silu(%y) : tensor<4 x f32>\n}", "dce", ":2:13: %y is used before it is defined"),
        ("graph g() {\n  %x = frob() : tensor<4 x f32>\n}", "dce", ":2:3: frob: no such operation"),
        (_TEXT, "fuse_silu,dce", "no pass 'fuse_silu'; there are: "),
        (_TEXT.replace(") {", ') sema {batch = 9, dynamic_batch = "T"} {', 1), "specialise_batch",
         "T must be in 1..8, got 9"),
        (_TEXT.replace(") {", ') sema {device.exp = "tpu"} {', 1), "dce",
         ":1:27: device.exp must be one of cpu, gpu, npu"),
        (_TEXT.replace("%c = add", '%q = quantise(%a) {output = "q8a"} : tensor<T x 32 x q8a>\n  %c = add'), "step",
         ":5:3: pair_rope_rows takes a graph of level semantic"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_line_and_column(text: str, passes: str, message: str, tmp_path: Path, capsys):
    path = tmp_path / "in.llmir"
    path.write_text(text)
    code, out, err = _unsay(capsys, "opt", path, "--passes", passes)
    assert (code, out) == (1, "") and message in err and err.count("\n") == 1
    assert (str(path) in err) == message.startswith(":")


@pytest.mark.parametrize("argv", [[], ["/nowhere/in.llmir"], [__file__, "-o", "/nowhere/out"]])
def test_files_that_cannot_be_used_are_one_line(argv: list[str], tmp_path: Path, capsys):
    code, out, err = _unsay(capsys, "opt", *argv)
    assert (code, out) == (1, "") and err.count("\n") == 1


def test_an_output_that_cannot_be_written_is_one_line(source: Path, capsys):
    code, _, err = _unsay(capsys, "opt", source, "-o", "/nowhere/out.llmir")
    assert code == 1 and "cannot write /nowhere/out.llmir" in err


def test_a_file_named_mlir_is_the_generic_form(source: Path, tmp_path: Path, capsys):
    generic, text = tmp_path / "g.mlir", tmp_path / "g.llmir"
    assert _unsay(capsys, "opt", source, "-o", generic)[0] == 0
    assert generic.read_text().startswith('"builtin.module"() ({\n  "llmir.graph"() ({\n')
    assert _unsay(capsys, "opt", generic, "-o", text)[0] == 0
    assert text.read_text() == _TEXT


def test_an_extension_brings_its_operations_and_passes(tmp_path: Path, capsys):
    path = tmp_path / "in.llmir"
    path.write_text(acme.CASE)
    code, out, err = _unsay(capsys, "opt", path, "--extension", acme.__name__, "--passes", "acme_fuse_relu,dce")
    assert code == 0 and "maximum" not in out and "acme_fuse_relu: 1" in err
    code, _, err = _unsay(capsys, "opt", path, "--passes", "acme_fuse_relu")
    assert code == 1 and "no pass 'acme_fuse_relu'" in err
    code, _, err = _unsay(capsys, "opt", path, "--extension", "no_such_module")
    assert code == 1 and "no module 'no_such_module' for an extension" in err
