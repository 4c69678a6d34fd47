from __future__ import annotations

import json
from pathlib import Path

import pytest

from unsay.cli.main import main
from unsay.cli.options import KV_FORMATS as KV_CHOICES
from unsay.cli.options import PREFILLS as CLI_PREFILLS
from unsay.compiler.codegen.elf import link
from unsay.compiler.ir.parser import parse
from unsay.isa.classes import PREFILLS
from unsay.isa.kv import AUTO, KV_FORMATS
from unsay.vm.program_file import read_program


def test_a_compiled_model_is_found_by_the_next_start(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(tiny_path), "--target", "avx2", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert (Path(first["image"]) / "manifest.json").exists() and first["target"] == "avx2"
    assert main(["compile", str(tiny_path), "--target", "avx2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["image"] == first["image"]


def test_the_format_of_keys_and_values_is_chosen_and_told(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(KV_CHOICES) == [AUTO, *KV_FORMATS]
    made = []
    for kv in KV_CHOICES:
        assert main(["compile", str(tiny_path), "--target", "avx2", "--kv", kv, "--json"]) == 0
        made.append(json.loads(capsys.readouterr().out))
    assert [row["kv"] for row in made] == ["f16", "f16", "f32", "int8"]
    assert [row["kv_token_bytes"] for row in made] == [256, 256, 512, 160]


def test_the_class_of_prompts_is_chosen_and_told(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CLI_PREFILLS == PREFILLS
    for prefill in PREFILLS:
        assert main(["compile", str(tiny_path), "--target", "avx2", "--prefill", prefill, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["prefill"] == prefill
        _written(tiny_path, "--prefill", prefill, "--emit", "avm", "-o", tmp_path / prefill)
    exact, fast = (read_program(tmp_path / prefill).program for prefill in PREFILLS)
    assert len(exact) == len(fast) and exact.to_bytes() != fast.to_bytes()
    assert main(["compile", str(tiny_path), "--target", "ptx", "--prefill", "fast"]) == 1
    assert "CPU targets only" in capsys.readouterr().err


def test_an_unknown_target_is_refused(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(tiny_path), "--target", "z80"]) == 1
    assert "avx2" in capsys.readouterr().err


def _written(tiny_path: Path, *argv: object) -> None:
    assert main(["compile", str(tiny_path), "--target", "avx2", *map(str, argv)]) == 0


def test_stages_are_written_without_packing_a_weight(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNSAY_CACHE", str(tmp_path / "cache"))
    _written(tiny_path, "--emit", "llmir")
    assert parse(capsys.readouterr().out).name == "llama"
    _written(tiny_path, "--emit", "llvm")
    assert "define i32 @step(" in capsys.readouterr().out
    _written(tiny_path, "--emit", "object", "-o", tmp_path / "step.o")
    assert {"step", "run"} <= link((tmp_path / "step.o").read_bytes())[1].keys()
    _written(tiny_path, "-o", tmp_path / "step.avm")
    assert read_program(tmp_path / "step.avm").program.instructions[-1].row.name == "HALT"
    assert not (tmp_path / "cache").exists()


def test_graphs_are_printed_after_the_passes_asked_for(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _written(tiny_path, "--print-after", "fuse_ffn", "--print-after", "dce")
    out = capsys.readouterr().out
    assert out.count("graph llama") == 2 and out.index("// after dce") < out.index("// after fuse_ffn: ")
    assert " = ffn(" not in out.split("// after fuse_ffn")[0] and " = ffn(" in out


def test_what_a_back_end_makes_is_written_into_a_directory(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compile", str(tiny_path), "--target", "vulkan", "--emit"]
    assert main([*command, "files", "-o", str(tmp_path / "made" / "here")]) == 0
    launches = json.loads((tmp_path / "made" / "here" / "launches.json").read_text())["launches"]
    assert all((tmp_path / "made" / "here" / f"{launch['kernel']}.wgsl").exists() for launch in launches)
    assert main([*command, "asm"]) == 1
    assert "vulkan has no asm: it makes WGSL kernels of a whole step" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--emit", "object"], "-o OUT"),
        (["--emit", "files", "-o", "/dev/null/x"], "cannot make /dev/null/x"),
        (["--print-after", "inline"], "no such pass is run here; these are: pair_rope_rows"),
        (["--emit", "llmir", "-o", "/nowhere/x"], "cannot write /nowhere/x"),
    ],
)
def test_a_stage_that_cannot_be_written_is_refused(
    argv: list[str], message: str, tiny_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", str(tiny_path), "--target", "avx2", *argv]) == 1
    assert message in capsys.readouterr().err
