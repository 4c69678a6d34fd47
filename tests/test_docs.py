"""The walks in docs/ name functions that exist."""

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
