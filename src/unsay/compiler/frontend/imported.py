"""What a front end gives: a graph, and the arrays of its weights beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unsay.compiler.ir.core import Graph


@dataclass(frozen=True, slots=True)
class Imported:
    """`weights` holds an array for every `weight() {tensor = name}` of the graph, under that name.

    NumPy has no bf16: such an array is f32, or uint16 where the weight's declared type is bf16 and it holds the bits.
    """

    graph: Graph
    weights: Mapping[str, NDArray[Any]]
