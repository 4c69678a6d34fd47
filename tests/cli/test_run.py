from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def run(path: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`unsay run` on a tiny model, greedily and for 12 tokens."""
    fixed = ["--model", str(path), "--temperature", "0", "--max-tokens", "12", "--ignore-eos"]
    command = [sys.executable, "-m", "unsay", "run", *fixed, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def test_the_answer_is_plain_text_and_the_same_from_argument_and_stdin(tiny_path: Path) -> None:
    given, piped, dashed = run(tiny_path, "hello"), run(tiny_path, stdin="hello"), run(tiny_path, "-", stdin="hello")
    assert given.returncode == 0 and given.stderr == ""
    assert given.stdout.endswith("\n") and len(given.stdout) > 1
    assert given.stdout == piped.stdout == dashed.stdout


def test_json_is_an_event_a_line_and_a_summary(tiny_path: Path) -> None:
    *events, summary = [json.loads(line) for line in run(tiny_path, "--json", "hello").stdout.splitlines()]
    assert [event["index"] for event in events] == list(range(12))
    assert events[-1]["finish"] == "length" == summary["finish"]
    assert summary["tokens"] == 12 and summary["prompt_tokens"] > 0
    assert (summary["kv"], summary["kv_token_bytes"], summary["prefill"]) == ("f16", 256, "exact")
    text = "".join(event["text"] for event in events)
    assert run(tiny_path, "hello").stdout.rstrip("\n") == text.rstrip("\n")


def test_prompts_may_be_computed_in_the_fast_class(tiny_path: Path) -> None:
    summary = json.loads(run(tiny_path, "--json", "--prefill", "fast", "hello").stdout.splitlines()[-1])
    assert summary["prefill"] == "fast"
    refused = run(tiny_path, "--prefill", "quick", "hello")
    assert refused.returncode == 2 and "'exact', 'fast'" in refused.stderr.replace("exact, fast", "'exact', 'fast'")


def test_an_empty_prompt_is_refused(tiny_path: Path) -> None:
    result = run(tiny_path, stdin=" \n")
    assert result.returncode == 1 and "the prompt is empty" in result.stderr


def test_a_system_message_changes_the_context(tiny_path: Path) -> None:
    plain, told = (
        json.loads(run(tiny_path, "--json", *system, "hello").stdout.splitlines()[-1])
        for system in ([], ["--system", "A much longer system message than the one of the template."])
    )
    assert told["prompt_tokens"] > plain["prompt_tokens"]
