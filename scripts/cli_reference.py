#!/usr/bin/env python3
"""Write docs/cli.md from the help texts of the command line. `make setup` first; tests check that it is up to date."""

from __future__ import annotations

import argparse
from pathlib import Path

from unsay.cli.main import VERBS, make_parser, make_verb_parser

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"


def reference() -> str:
    """The text of docs/cli.md."""
    parts = ["# The command line\n", "Made by scripts/cli_reference.py from what `unsay --help` prints.\n"]
    parts += [_section("unsay", make_parser())]
    parts += [_section(f"unsay {name}", make_verb_parser(name)) for name in VERBS]
    return "\n".join(parts)


def _section(title: str, parser: argparse.ArgumentParser) -> str:
    text = "\n".join(f"    {line}".rstrip() for line in parser.format_help().splitlines())
    return f"## {title}\n\n{text}\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
