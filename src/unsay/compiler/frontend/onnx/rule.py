"""A row of the tables of rules: how one ONNX operator becomes LLMIR."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from unsay.compiler.frontend.onnx.builder import Item
from unsay.compiler.frontend.onnx.call import Call

Run: TypeAlias = Callable[[Call], Item | tuple[Item, ...]]


@dataclass(frozen=True, slots=True)
class Rule:
    """`attributes` are those that `run` reads: a node with another is refused, since it would be ignored."""

    run: Run
    min_inputs: int
    max_inputs: float
    attributes: frozenset[str] = frozenset()


def rule(run: Run, inputs: int | tuple[int, float], *attributes: str) -> Rule:
    """A row: how many inputs, and the names of the attributes."""
    low, high = inputs if isinstance(inputs, tuple) else (inputs, inputs)
    return Rule(run, low, high, frozenset(attributes))
