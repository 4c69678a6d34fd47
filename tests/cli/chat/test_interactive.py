"""The chat on a pseudo-terminal, from outside: what is typed, and what the screen then says."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

_READY = "you> "
_POSITIONS = r"stopped within [\d.]+ (us|ms|s); the answer and its token positions"


@pytest.fixture
def chat(tiny_path: Path) -> Iterator[pexpect.spawn]:
    """A chat whose answers go on for seconds: the reference executor, never ending by itself."""
    arguments = ["-m", "unsay", "chat", "--model", str(tiny_path), "--executor", "reference"]
    arguments += ["--max-tokens", "900", "--ignore-eos", "--seed", "3"]
    child = pexpect.spawn(
        sys.executable, arguments, timeout=90, encoding="utf-8", dimensions=(24, 100), codec_errors="replace"
    )
    child.expect_exact(_READY)
    yield child
    child.close(force=True)


def start_answer(chat: pexpect.spawn) -> None:
    """Ask something, and wait until the answer runs."""
    chat.send("hello\r")
    chat.expect_exact("hello\r\n")
    chat.expect(r"[^\r\n]{5}")


def stop_answer(chat: pexpect.spawn) -> None:
    chat.send("\x03")
    chat.expect(_POSITIONS)
    chat.expect_exact("fix> ")


def undo_correction(chat: pexpect.spawn) -> None:
    """The picker, after an answer into which " the pan" was put is as it was."""
    start_answer(chat)
    stop_answer(chat)
    chat.send(" the pan\r")
    chat.expect("tokens kept")
    stop_answer(chat)
    chat.send("/undo\r")


def quit_chat(chat: pexpect.spawn) -> None:
    chat.send("\x15/quit\r")
    chat.expect(pexpect.EOF)
    assert chat.wait() == 0


def mode_of(chat: pexpect.spawn) -> list[object]:
    """The terminal's settings, but for the state of its queue."""
    return termios.tcgetattr(chat.child_fd)


def test_ctrl_c_stops_the_answer_and_shows_positions(chat: pexpect.spawn) -> None:
    start_answer(chat)
    stop_answer(chat)
    quit_chat(chat)


def test_a_key_pressed_while_it_answers_stops_it_and_begins_the_correction(chat: pexpect.spawn) -> None:
    start_answer(chat)
    chat.send("s")
    chat.expect(_POSITIONS)
    chat.expect_exact("fix> s")
    chat.send("top it\r")
    chat.expect(r"\[\d+ tokens kept, 0 dropped, \d+ injected; first new token after .* \(\d+ computed\)\]")
    chat.expect_exact("stop it")
    stop_answer(chat)
    quit_chat(chat)


def test_back_then_text_puts_it_there_and_undo_takes_it_out(chat: pexpect.spawn) -> None:
    start_answer(chat)
    stop_answer(chat)
    chat.send("/back 3\r")
    chat.expect_exact("the answer ends with")
    chat.expect_exact("fix> ")
    chat.send(" pandas\r")
    chat.expect(r"(\d+) tokens kept, (\d+) dropped")
    stop_answer(chat)
    chat.send("/undo\r")
    chat.expect(r"the answer is open and ends with: [^\r]* pandas")
    chat.send("/undo\r")
    chat.expect(r"(\d+) tokens, the answer is open")
    chat.send('/back "no such text"\r')
    chat.expect_exact("! 'no such text' is not in the answer")
    quit_chat(chat)


def test_arrow_keys_pick_a_token_and_typing_goes_on_from_there(chat: pexpect.spawn) -> None:
    start_answer(chat)
    stop_answer(chat)
    chat.send("\x1b[D")
    chat.expect(r"back to (\d+): ")
    last = int(chat.match[1])
    chat.send("\x1b[D\x1b[D")
    chat.expect_exact(f"back to {last - 2}: ")
    chat.expect_exact("\x1b[7m")
    chat.send("\x1b")
    chat.expect_exact("fix> ")
    chat.send("\x1b[D\x1b[Hx")
    chat.expect_exact("the answer is empty")
    chat.expect(r"fix> +x")
    chat.send("\r")
    chat.expect(rf"\d+ tokens kept, {last + 1} dropped")
    stop_answer(chat)
    quit_chat(chat)


def test_enter_after_a_pick_puts_no_white_space_there(chat: pexpect.spawn) -> None:
    undo_correction(chat)
    chat.expect_exact("the pan")
    chat.expect_exact("fix> ")
    chat.send("\x1b[D")
    chat.expect(r"back to (\d+): ")
    chat.send("\r")
    chat.expect_exact("fix>  ")
    chat.send("\r")
    chat.expect(r"tokens kept, 1 dropped, 0 injected; rollback")
    stop_answer(chat)
    quit_chat(chat)


def test_a_command_may_follow_a_pick(chat: pexpect.spawn) -> None:
    undo_correction(chat)
    chat.expect_exact("fix> ")
    chat.send("\x1b[D/undo\r")
    chat.expect_exact("tokens, the answer is open")
    quit_chat(chat)


def test_a_window_that_changes_size_is_drawn_anew(chat: pexpect.spawn) -> None:
    chat.send("x" * 90)
    chat.expect_exact("x" * 90)
    chat.setwinsize(24, 40)
    chat.expect(r"you> x{33,34}\r")
    quit_chat(chat)


def test_pasted_lines_are_one_text(chat: pexpect.spawn) -> None:
    chat.send("\x1b[200~one\ntwo\x1b[201~")
    chat.expect_exact("you> one⏎two")
    quit_chat(chat)


def test_end_of_input_ends_the_chat(chat: pexpect.spawn) -> None:
    chat.send("\x04")
    chat.expect(pexpect.EOF)
    assert chat.wait() == 0


@pytest.mark.parametrize("running", [False, True])
def test_the_terminal_is_restored_also_by_a_signal(tiny_path: Path, running: bool) -> None:
    before, after = "before:", "after:"
    talk = f"{sys.executable} -m unsay chat --model {tiny_path} --executor reference"
    script = f"stty -a; echo {before}; {talk}; echo {after}; stty -a"
    shell = pexpect.spawn("/bin/sh", ["-c", script], timeout=90, encoding="utf-8", codec_errors="replace")
    shell.expect_exact(before)
    modes = shell.before
    shell.expect_exact(_READY)
    if running:
        start_answer(shell)
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGTERM)
    shell.expect_exact(after)
    shell.expect(pexpect.EOF)
    assert re.sub(r"\s+", " ", shell.before).strip() == re.sub(r"\s+", " ", modes).strip()
    shell.close()


def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(tiny_path: Path) -> None:
    shell = pexpect.spawn("/bin/bash", ["--norc", "-i"], timeout=90, encoding="utf-8", codec_errors="replace")
    shell.send(f"{sys.executable} -m unsay chat --model {tiny_path}\r")
    shell.expect_exact("type a message")
    shell.expect_exact(_READY)
    shell.send("abc\x1a")
    shell.expect_exact("Stopped")
    shell.send("stty -a | grep -c '^isig icanon' ; echo done:\r")
    shell.expect(r"1\r\ndone:")
    shell.send("fg\r")
    shell.expect_exact("you> abc")
    shell.send("\x15/quit\r")
    shell.expect_exact("/quit")
    shell.send("exit\r")
    shell.expect(pexpect.EOF)
    shell.close()
