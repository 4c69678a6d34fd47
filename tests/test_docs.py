"""The walks in docs/ name functions that exist, and prose is no wider than code."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
NAME = re.compile(r"`([a-z_0-9]+(?:\.[A-Za-z_0-9]+)+)`")


def resolve(name: str) -> object:
    """The module, class, function, method or value of this dotted name below `unsay`."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["unsay", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(f"no module of unsay begins {name}")


@pytest.mark.parametrize("walk", ["model.md", "token.md"])
def test_every_function_a_walk_names_exists(walk: str) -> None:
    names = NAME.findall((DOCS / walk).read_text())
    assert len(names) > 20
    for name in names:
        resolve(name)


def test_prose_is_no_wider_than_code() -> None:
    """120 characters. Rows of tables cannot be broken, and what is indented is what a program printed."""
    pages = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
    lines = [(page.name, line) for page in pages for line in page.read_text().splitlines()]
    assert [(page, line) for page, line in lines if len(line) > 120 and not line.startswith(("|", "    "))] == []
