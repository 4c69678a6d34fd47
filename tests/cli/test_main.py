from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from unsay.cli.main import VERBS, main, make_verb_parser
from unsay.cli.options import sampling_params
from unsay.core import SamplingParams
from unsay.errors import UnsayError

ROOT = Path(__file__).parent.parent.parent


def unsay(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "unsay", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the shell."""
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


MAX_MODULES_FOR_HELP = 60
"""That `unsay --help` imports beyond those of an empty program: argparse and what it needs are most of them."""


def test_help_imports_little_and_nothing_heavy() -> None:
    imported = _modules("from unsay.cli.main import main; main(['--help'])") - _modules("pass")
    heavy = {"numpy", "llvmlite", "tokenizers", "minijinja", "rich", "asyncio", "dataclasses", "inspect"}
    assert "unsay.cli.main" in imported and not heavy & imported
    assert len(imported) <= MAX_MODULES_FOR_HELP, sorted(imported)


def _modules(script: str) -> set[str]:
    """Names of all modules at the end of a process that runs `script`."""
    watch = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))"
    command = [sys.executable, "-c", f"{watch}; {script}"]
    return {*subprocess.run(command, capture_output=True, text=True, check=True).stderr.split()}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str) -> None:
    text = make_verb_parser(verb).format_help()
    assert text.startswith(f"usage: unsay {verb}") and len(text) > 150


def test_the_reference_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "cli_reference.py"))
    assert script["TARGET"].read_text(encoding="utf-8") == script["reference"](), "run scripts/cli_reference.py"


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert unsay("--version").stdout == f"unsay {version('unsay')}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["fly"], ["run", "--fly", "x"], ["run", "--top-k", "x", "y"], ["--fly"], ["list", "x"]]
)
def test_wrong_usage_exits_with_2_and_says_so_on_stderr(arguments: list[str]) -> None:
    result = unsay(*arguments)
    assert result.returncode == 2
    assert result.stdout == "" and "usage:" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [["run", "--model", "nope", "x"], ["pull", "nope"], ["run", ""], ["chat", "--model", "no.gguf"]]
)
def test_an_error_is_a_line_without_a_traceback(arguments: list[str]) -> None:
    result = unsay(*arguments)
    assert result.returncode == 1
    assert result.stdout == "" and result.stderr.startswith("unsay: ") and result.stderr.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error(tiny_path: Path) -> None:
    pipeline = f"{sys.executable} -m unsay run --model {tiny_path} --ignore-eos --json hi | head -n 1"
    result = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, check=False)
    assert result.stdout.count("\n") == 1 and result.stderr == ""


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
@pytest.mark.parametrize("verb", ["list", "run --max-tokens 3 hi", "--version"])
def test_a_stdout_that_takes_nothing_is_one_line(tiny_path: Path, verb: str, redirection: str) -> None:
    verb = verb.replace("run", f"run --model {tiny_path}")
    result = shell(f"{sys.executable} -m unsay {verb} {redirection}")
    assert result.returncode == 1
    assert result.stderr.startswith("unsay: ") and result.stderr.count("\n") == 1, result.stderr
    assert "send it to" in result.stderr


def test_closed_input_is_an_empty_prompt_and_a_closed_stderr_is_no_error(tiny_path: Path) -> None:
    run = f"{sys.executable} -m unsay run --model {tiny_path} --max-tokens 3"
    assert "the prompt is empty" in shell(f"{run} <&-").stderr
    result = shell(f"{run} hi 2>&-")
    assert result.returncode == 0 and result.stdout


@pytest.mark.parametrize("encoding", ["utf-8:strict", "latin-1", "ascii"])
def test_bytes_that_are_not_utf_8_are_named_whatever_the_locale(tiny_path: Path, encoding: str) -> None:
    for verb in ("run", "chat"):
        unsay = f"PYTHONIOENCODING={encoding} {sys.executable} -m unsay {verb} --model {tiny_path}"
        result = shell(f"printf 'caf\\351 x' | {unsay}")
        assert "not UTF-8: after 3 characters comes the byte 0xe9" in result.stdout + result.stderr
        assert "Traceback" not in result.stderr


def test_a_terminal_that_cannot_show_a_character_gets_another(tiny_path: Path) -> None:
    run = f"{sys.executable} -m unsay run --model {tiny_path} --ignore-eos --max-tokens 60 --temperature 5 hi"
    assert not shell(run).stdout.isascii()
    result = shell(f"PYTHONIOENCODING=ascii {run}")
    assert result.returncode == 0 and result.stdout.isascii() and "?" in result.stdout


def test_ctrl_c_ends_a_verb_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unsay.hub.list_models", interrupted)
    assert main(["list"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_errors_of_verbs_become_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise UnsayError("what to do")

    monkeypatch.setattr("unsay.hub.list_models", fail)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "unsay: what to do\n"


def test_options_not_given_keep_the_defaults_of_the_engine() -> None:
    assert sampling_params(make_verb_parser("run").parse_args(["x"])) == SamplingParams()
    given = make_verb_parser("run").parse_args(
        ["x", "--temperature", "0", "--seed", "7", "--stop", "a", "--stop", "b", "--ignore-eos", "--top-k", "5"]
    )
    assert sampling_params(given) == SamplingParams(temperature=0, seed=7, stop=("a", "b"), ignore_eos=True, top_k=5)


def test_the_defaults_named_in_the_help_are_those_of_the_engine() -> None:
    defaults, text = SamplingParams(), " ".join(make_verb_parser("run").format_help().split())
    for name in (
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "seed",
        "max_tokens",
    ):
        described = text.split(f" --{name.replace('_', '-')} ")[-1].split(" --")[0]
        assert f"(default {getattr(defaults, name):g})" in described, name
