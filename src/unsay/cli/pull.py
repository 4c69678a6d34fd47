"""Download a known model into the cache. May be stopped at any time; the next pull goes on from there."""

from __future__ import annotations

import argparse

from unsay.cli.options import DEFAULT_MODEL
from unsay.cli.output import progress_bars, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "name", nargs="?", default=DEFAULT_MODEL, help=f"a name of `unsay list` (default {DEFAULT_MODEL})"
    )


def run(args: argparse.Namespace) -> int:
    """Fetch it and print where it is."""
    from unsay import hub

    with progress_bars() as progress:
        path = hub.pull(args.name, progress)
    write_line(str(path))
    return 0
