"""Graphs of text cases, which often end in values that nothing reads: here all of those are outputs."""

from __future__ import annotations

from unsay.compiler.ir.core import Graph


def seen(graph: Graph) -> Graph:
    """The graph, with an output of every value that nothing reads if it has no output."""
    if all(operation.kind != "output" for operation in graph.operations):
        unread = [value for operation in graph.operations for value in operation.results if not value.uses]
        if unread:
            graph.add("output", unread)
    return graph
