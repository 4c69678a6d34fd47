"""Show the models known by name, and whether the cache holds them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from unsay.cli.options import add_json_option
from unsay.cli.output import write_json, write_line

if TYPE_CHECKING:
    from unsay.hub import ModelEntry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print a line for each model."""
    from unsay import hub

    for entry in hub.list_models():
        if args.json:
            write_json(_as_json(entry))
        else:
            state = str(entry.path) if entry.is_cached else f"not here yet: unsay pull {entry.name}"
            write_line(f"{entry.name}  {entry.size_bytes / 1e6:.1f} MB  {entry.summary}\n    {state}")
    return 0


def _as_json(entry: ModelEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "summary": entry.summary,
        "path": str(entry.path),
        "bytes": entry.size_bytes,
        "cached": entry.is_cached,
    }
