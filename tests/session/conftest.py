"""A tiny model on the null executor: everything but the arithmetic is real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models import loaded
from unsay import Model


@pytest.fixture
def model(tiny_path: Path) -> Iterator[Model]:
    """Nothing may be left in its pool at the end of a test."""
    with loaded(tiny_path) as model:
        yield model
