from __future__ import annotations

import sys
from pathlib import Path

import pexpect

_SCRIPT = """
import time
from unsay.cli.output import progress_bars
with progress_bars() as progress:
    for done in range(0, 10_000_001, 2_500_000):
        progress("download", done, 10_000_000)
        time.sleep(0.15)
    progress("compile", 1, 30)
    time.sleep(0.3)
print("done")
"""


def test_a_bar_is_drawn_for_each_kind_of_work_and_then_cleared() -> None:
    child = pexpect.spawn(sys.executable, ["-c", _SCRIPT], timeout=20, encoding="utf-8", dimensions=(24, 80))
    child.expect(r"download [^\r\n]*2\.5/10\.0 MB")
    child.expect(r"compile [^\r\n]*1/30")
    child.expect(r"\x1b\[2K")
    child.expect_exact("done")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_there_is_no_bar_where_stderr_is_no_terminal(tmp_path: Path) -> None:
    script = "from unsay.cli.output import progress_bars\nwith progress_bars() as progress: print(progress)"
    child = pexpect.spawn("/bin/sh", ["-c", f"{sys.executable} -c '{script}' 2>{tmp_path / 'err'}"], encoding="utf-8")
    child.expect_exact("None")
    child.close()
    assert (tmp_path / "err").read_text() == ""
