"""`unsay eval` and `unsay bench`, as typed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from unsay.cli.main import main


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The sun rose over the hill, and the dog slept on.\n" * 6, encoding="utf-8")
    return path


def test_eval_prints_one_json_object(tiny_path: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["eval", "perplexity", "--model", str(tiny_path), "--text", str(text), "--context", "64", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert result["perplexity"] == pytest.approx(math.exp(result["mean_nll"]))
    assert result["num_scored"] == result["num_tokens"] - -(-result["num_tokens"] // 64)


def test_eval_of_a_missing_file_says_so(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "perplexity", "--model", str(tiny_path), "--text", "/nowhere.txt"]) == 1
    assert "/nowhere.txt" in capsys.readouterr().err


def test_eval_of_a_file_that_is_no_text_says_so(
    tiny_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"abc\xff\xfe")
    assert main(["eval", "perplexity", "--model", str(tiny_path), "--text", str(binary)]) == 1
    assert "not UTF-8 text (byte 3)" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["decode", "prefill", "correct", "fork"])
def test_bench_prints_json_with_the_hardware(tiny_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", what, "--model", str(tiny_path), "--context", "64", "--samples", "4", "--json"]) == 0
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {result["bench"] for result in results} == {what}
    assert results[0]["hardware"]["read_bandwidth"] > 0


def test_bench_tells_what_the_fast_class_gives(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "prefill", "--model", str(tiny_path), "--context", "64", "--samples", "4", "--json"]
    assert main([*argv, "--prefill", "fast"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["prefill"] == "fast" and result["times_exact"] > 0
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out)["times_exact"] == 1


def test_bench_refuses_no_samples(tiny_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "fork", "--model", str(tiny_path), "--samples", "0"]) == 1
    assert "--samples 0" in capsys.readouterr().err
