"""docs/targets.md says what tests show, of every target there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[3]


def test_the_table_has_every_target_and_names_tests_that_exist() -> None:
    command = [sys.executable, "scripts/targets-table", "--check"]
    result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
