"""The graph for one size of its dynamic batch.

    graph g(B: 1..8, ..) sema {dynamic_batch = "B", batch = 4}   ->   graph g(..), 4 in place of B everywhere

in types, in formulas of other dimensions and in constraints; `size {dim = "B"}` becomes a constant. What the graph
computes for a batch of 4 is equal in every bit. Raises RequestError if the size breaks a range or a constraint.
"""

from __future__ import annotations

from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.specialise import at_sizes


def specialise_batch(graph: Graph) -> int:
    """1 if the graph was specialised, 0 if it has no dynamic batch or wants no size of it."""
    dim, size = graph.sema.get("dynamic_batch"), graph.sema.get("batch")
    if not isinstance(dim, str) or not isinstance(size, int):
        return 0
    fixed = at_sizes(graph, {dim: size})
    fixed.sema = {name: value for name, value in graph.sema.items() if name not in ("dynamic_batch", "batch")}
    graph.become(fixed)
    return 1
