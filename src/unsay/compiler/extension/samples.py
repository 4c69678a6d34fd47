"""Inputs at which graphs of extensions are run: sizes that keep every promise, and random arrays of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from unsay.compiler.dialect.domains import CONCRETE, FIELD, PRIME, Array, Domain
from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.specialise import at_sizes
from unsay.errors import IrError, RequestError

Arrays = dict[str, Array]

_CLOSE = 1e-4
_TRIED = 16
"""Sizes of a dimension that are tried, from the least on."""


def at_some_sizes(graph: Graph) -> Graph:
    """The graph at the second set of sizes that keeps its ranges and constraints, or the only one."""
    found = list(itertools.islice(_fitting(graph), 2))
    if not found:
        raise IrError(f"no sizes near the least of {', '.join(graph.dims)} keep the constraints", *graph.location)
    return found[-1]


def _fitting(graph: Graph) -> Iterator[Graph]:
    free = [dim for dim in graph.dims.values() if dim.formula is None]
    ranges = [range(dim.low, min(dim.high, dim.low + _TRIED) + 1) for dim in free]
    for sizes in itertools.product(*ranges):
        try:
            yield at_sizes(graph, dict(zip((dim.name for dim in free), sizes, strict=True)))
        except RequestError:
            continue


def inputs_of(graph: Graph, domain: Domain, seed: int) -> tuple[Arrays, Arrays]:
    """Random inputs and weights of a graph of fixed sizes: numbers of the domain, integers 0 and 1, bools."""
    random = np.random.default_rng(seed)
    inputs: Arrays = {}
    weights: Arrays = {}
    for operation in graph.operations:
        if operation.kind == "input":
            inputs[operation.string("name")] = _array(operation.result, domain, random)
        if operation.kind == "weight":
            weights[operation.string("tensor")] = _array(operation.result, domain, random)
    return inputs, weights


def _array(value: Value, domain: Domain, random: np.random.Generator) -> Array:
    shape = tuple(int(str(extent)) for extent in value.type.dims)
    if value.type.dtype in CONCRETE:
        return random.integers(0, 2, shape).astype(CONCRETE[value.type.dtype])
    if domain is FIELD:
        return random.integers(0, PRIME, shape).astype(np.uint64)
    return random.standard_normal(shape).astype(np.float32)


def same(a: Array, b: Array) -> bool:
    """Equal, bit for bit but for the sign of 0."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def close(a: Array, b: Array) -> bool:
    """Floats equal to about four digits; anything else equal."""
    return np.allclose(a, b, _CLOSE, _CLOSE, equal_nan=True) if a.dtype.kind == "f" else same(a, b)
