"""Every file of benchmarks/ runs from its header to its last result, on a model too small for figures to mean much."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

import benchmarks
from benchmarks.peers.rows import ROWS
from tests.tiny import write_tiny_gguf
from unsay.benchmark import hardware

_DIRECTORY = Path(benchmarks.__file__).parent
_NO_PROGRAMS = {"__init__", "reading", "report"}


class Case(NamedTuple):
    """arguments: MODEL stands for the tiny model. last: what the name of the last result begins with, a pattern.
    is_long: it is run once only, for objects, which not every value can be printed in."""

    arguments: str
    last: str
    is_long: bool = False


CASES = {
    "accuracy": Case("--model MODEL --chunks 1", "limits"),
    "checksum": Case("--model MODEL --tokens 65", ".*, fast class, int8 pages"),
    "compile": Case("--model MODEL --repeats 1", "MODEL from the cache", is_long=True),
    "corrections": Case("--model MODEL --samples 2", "1000 forks: KV pages", is_long=True),
    "cross_check": Case("", "qwen2"),
    "decode": Case("--model MODEL --tokens 2", "prefill, "),
    "head": Case("--model MODEL --tokens 2", "clusters, 256"),
    "hostile": Case("--model MODEL --repeats 1", "truncations", is_long=True),
    "importing": Case("--only 'llama, spread' --only Qwen3", "Qwen3", is_long=True),
    "kv": Case("--model MODEL --context 16 --tokens 2 --text-tokens 64", "perplexity, 64 tokens, int8"),
    "kv_reading": Case("--model MODEL --context 40 --rounds 1", "int8, asked for ahead"),
    "prefill": Case("--model MODEL --tokens 16 --rounds 1 --windows 1", "accuracy, 1 windows, 256 tokens"),
    "profile": Case("--model MODEL --tokens 1,64 --repeats 1", "T=64"),
    "sampling": Case("--model MODEL", "sampling, temperature 0.7, min_p 0.05"),
    "speculation": Case("--model MODEL --tokens 4", r"\d guesses"),
    "startup": Case("--model MODEL --repeats 1", "cold start parts", is_long=True),
    "vulkan": Case("--rows 64 --columns 64 --repeats 1", "fma of the device", is_long=True),
}
_COMPARE = "--model MODEL --alone --rounds 1 --latencies 2 --chunks 1 --patience 0"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Has room for the longest context that is measured, and whole groups of rows in its head, which is Q8_0; the rest
    is F16, for which the compiler has the least to do."""
    path = tmp_path_factory.mktemp("benchmarks") / "tiny.gguf"
    dtype = {"default": "F16", "token_embd": "Q8_0"}
    return str(write_tiny_gguf(path, dtype=dtype, layers=1, context_length=8400, extra_tokens=11))


@pytest.fixture(autouse=True)
def short_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """How fast memory is read is found with a megabyte, in no time."""
    monkeypatch.setattr(hardware.read_bandwidth, "__defaults__", (1 << 20,))


def printed(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    """The lines that `python -m benchmarks.NAME ARGUMENTS` prints."""
    path = str(_DIRECTORY / f"{name}.py")
    monkeypatch.setattr("sys.argv", [path, *arguments])
    runpy.run_path(path, run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_every_benchmark_has_a_case() -> None:
    assert {path.stem for path in _DIRECTORY.glob("*.py")} == {*CASES, "compare", *_NO_PROGRAMS}


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_prints_objects_for_programs(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = shlex.split(CASES[name].arguments.replace("MODEL", model))
    machine, *results = map(json.loads, printed(name, [*arguments, "--json"], monkeypatch, capsys))
    assert machine["command"] == shlex.join(["python", "-m", f"benchmarks.{name}", *arguments, "--json"])
    assert machine["cpu"] and machine["cores"] >= 1 and machine["read_bandwidth"] > 0
    assert re.match(CASES[name].last.replace("MODEL", re.escape(model)), results[-1]["result"])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.is_long])
def test_a_benchmark_prints_lines_for_people(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = shlex.split(CASES[name].arguments.replace("MODEL", model))
    command, machine, empty, *results = printed(name, arguments, monkeypatch, capsys)
    assert command == shlex.join(["python", "-m", f"benchmarks.{name}", *arguments])
    assert " GB/s read, load " in machine and not empty
    assert re.match(CASES[name].last, results[-1]) and all(": " in line for line in results)


def test_compare_measures_every_row_that_needs_no_peer(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And writes a page. Then it prints what it saved."""
    kept = ["--save", str(tmp_path / "results.json"), "--page", str(tmp_path / "page.md")]
    arguments = shlex.split(_COMPARE.replace("MODEL", model))
    (line,) = printed("compare", [*arguments, *kept, "--json"], monkeypatch, capsys)
    told = json.loads(line)
    assert len(told["rows"]) == len(ROWS)
    missing = {verdict["row"]["work"] for verdict in told["rows"] if verdict["ours"] is None}
    assert missing == {"perplexity"}, "of WikiText-2; the text of the tests is another"
    without_limit = {verdict["row"]["group"] for verdict in told["rows"] if verdict["limit"] is None}
    assert not without_limit & {"prefill", "batch"}
    page = (tmp_path / "page.md").read_text()
    command, *lines = printed("compare", ["--rows", "", *kept], monkeypatch, capsys)
    assert command.startswith("command: python -m benchmarks.compare --model")
    assert all(any(line.startswith(row.title) for line in lines) for row in ROWS)
    assert (tmp_path / "page.md").read_text() == page and f"| {ROWS[0].title} |" in page
