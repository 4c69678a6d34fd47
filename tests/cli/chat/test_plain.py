"""The chat driven by a script through a pipe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path


def talk(path: Path, *lines: str) -> list[str]:
    """What the chat prints for these lines."""
    command = [sys.executable, "-m", "unsay", "chat", "--model", str(path), "--max-tokens", "8", "--ignore-eos"]
    result = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.splitlines()


def test_a_script_corrects_undoes_and_saves(tiny_path: Path, tmp_path: Path) -> None:
    saved = [tmp_path / f"{n}.json" for n in range(3)]
    output = talk(
        tiny_path, "hello", f"/save {saved[0]}", "/back 3", " pandas", f"/save {saved[1]}", "/undo", "/undo", "/undo",
        f"/save {saved[2]}", "/history", "/quit", "never said",
    )  # fmt: skip
    first, corrected, undone = (json.loads(path.read_text(encoding="utf-8")) for path in saved)
    kept = len(first["token_ids"]) - 5
    assert undone == first
    assert corrected["token_ids"][:kept] == first["token_ids"][:kept]
    assert " pandas" in corrected["answer"]
    assert any(line.startswith(f"[{kept} tokens kept, 5 dropped") for line in output)
    verbs = [found[1] for line in output if (found := re.match(r"[* ] *\d+ +\d+  (\w+)", line))]
    assert verbs == ["user", "answer", "rollback", "inject", "answer"]


def test_a_rollback_the_model_goes_on_from_has_its_line_of_truth(tiny_path: Path) -> None:
    for go_on in ("", "/go"):
        output = talk(tiny_path, "hello", "/back 3", go_on, go_on)
        truths = [line for line in output if "tokens kept" in line]
        assert len(truths) == 1, "the second time nothing was taken back"
        assert "5 dropped, 0 injected; rollback" in truths[0] and "first new token after" in truths[0]


def test_branches_go_their_own_way(tiny_path: Path) -> None:
    output = talk(tiny_path, "hello", "/fork", "/back 2", " other", "/switch", "/switch 1", "/switch 3")
    assert any(line.startswith("this is branch 2") for line in output)
    assert any(line.startswith("*  2") and "other" in line for line in output)
    assert output[-1] == "! no branch 3; there are 1..2"


def test_what_cannot_be_done_is_said_and_the_chat_goes_on(tiny_path: Path) -> None:
    wrong = ["/back -1", "/back 3", "/undo", "/back", "/what", "/goto x", "/save /no/such/directory/x", "/diff 1 2 3"]
    output = talk(tiny_path, *wrong, "/help")
    assert [line[:2] for line in output[: len(wrong)]] == ["! "] * len(wrong)
    assert "rollback position -1 is out of range" in output[0]
    assert output[-1].startswith("/quit")


def test_ctrl_c_stops_the_answer_and_not_the_chat(tiny_path: Path) -> None:
    command = [sys.executable, "-m", "unsay", "chat", "--model", str(tiny_path), "--executor", "reference"]
    command += ["--max-tokens", "900", "--ignore-eos"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"hello\n")
        child.stdin.flush()
        child.stdout.read(20)
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(b"/back 3\n/quit\n", timeout=60)
        assert child.returncode == 0
    assert b"[stopped]" in output and b"type what comes next" in output
