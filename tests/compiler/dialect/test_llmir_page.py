import subprocess
import sys
from pathlib import Path

from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.parser import parse

_ROOT = Path(__file__).parents[3]


def test_tables_of_the_page_are_those_of_the_code():
    command = [sys.executable, "scripts/llmir-tables", "--check"]
    result = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_example_of_the_page_parses_and_verifies():

    page = (_ROOT / "docs" / "llmir.md").read_text()
    example = page.split("    // a comment\n")[1].split("\n\n")[0]
    graph = parse(example)
    verify(graph)
    assert len(graph.operations) == 3
