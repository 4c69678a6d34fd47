"""Runs a graph, operation by operation, in NumPy: slow, obvious, over any domain.

Sizes of dimensions are read off the arrays given; a formula gives the rest. Every result is checked against its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np

from unsay.compiler.dialect.domains import FLOAT, Array, Domain
from unsay.compiler.dialect.invariants import broken
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.dims import Dim
from unsay.compiler.ir.specialise import at_sizes
from unsay.errors import InvariantError, IrError, RequestError

Arrays: TypeAlias = Mapping[str, Array]
Step: TypeAlias = tuple[Operation, list[Array], list[Array]]

_ROWS = "rows"
"""The input that says which rows `select_rows` takes."""


def evaluate(
    graph: Graph, inputs: Arrays, weights: Arrays, domain: Domain = FLOAT, *, checked: bool = False
) -> list[Array]:
    """The operands of `output`, in order. Inputs by the names of `input`; for a step `tokens` [T] and `rows` [R].

    Raises RequestError where an array is missing or does not fit, or sizes break a range or a constraint; when
    `checked`, InvariantError at the first operation whose results break an invariant of its row.
    """
    for operation, operands, results in trace(graph, inputs, weights, domain):
        if checked and (invariant := broken(operation, operands, results)):
            raise InvariantError(f"{operation!r} at {operation.location[0]}:{operation.location[1]} breaks {invariant}")
        if operation.kind == "output":
            types = [value.type for value in operation.operands]
            return [domain.leave(array, kind.dtype) for array, kind in zip(operands, types, strict=True)]
    raise RequestError(f"graph {graph.name} has no output")


def trace(graph: Graph, inputs: Arrays, weights: Arrays, domain: Domain = FLOAT) -> Iterator[Step]:
    """Every operation of the graph at fixed sizes, with the arrays of its operands and results; raises as evaluate."""
    outside = _Outside(inputs, weights)
    fixed = at_sizes(graph, outside.sizes(graph))
    values: dict[Value, Array] = {}
    for operation in fixed.operations:
        _check_sizes(operation)
        operands = [values[operand] for operand in operation.operands]
        with np.errstate(all="ignore"):
            results = _results(operation, operands, outside, domain)
        values.update(zip(operation.results, results, strict=True))
        yield operation, operands, results


def _check_sizes(operation: Operation) -> None:
    dims = [extent.name for value in operation.results for extent in value.type.dims if isinstance(extent, Dim)]
    if operation.kind == "size":
        dims.append(operation.string("dim"))
    if dims:
        raise RequestError(f"nothing given says how large {dims[0]} is: give an input that has it")


def _results(operation: Operation, operands: list[Array], outside: _Outside, domain: Domain) -> list[Array]:
    if (given := outside.array(operation)) is not None:
        return [domain.enter(given, operation.result.type.dtype)]
    if operation.kind == "select_rows":
        operands = [*operands, np.asarray(outside.inputs[_ROWS])]
    try:
        made = SEMANTICS[operation.kind](domain, operation, operands)
    except IndexError as error:
        raise RequestError(f"{operation!r}: an index is outside {operation.operands[0]!r}: {error}") from error
    shapes = [array.shape for array in made]
    if shapes != [value.type.dims for value in operation.results]:
        message = f"{operation!r}: what it means has shapes {shapes}, not {list(operation.results)}"
        raise IrError(message, *operation.location)
    return [domain.round(array, value.type.dtype) for value, array in zip(operation.results, made, strict=True)]


class _Outside:
    """What a graph is given: arrays by name."""

    def __init__(self, inputs: Arrays, weights: Arrays) -> None:
        self.inputs = inputs
        self.weights = weights

    def array(self, operation: Operation) -> Array | None:
        """What is given for an operation, None if it is not given anything."""
        if operation.kind == "weight":
            return self._named(self.weights, operation.string("tensor"), "weight")
        if operation.kind == "input":
            return self._named(self.inputs, operation.string("name"), "input")
        return self._named(self.inputs, "tokens", "input") if operation.kind == "tokens" else None

    def sizes(self, graph: Graph) -> dict[str, int]:
        """The sizes of dimensions that the arrays show, each array checked against its type."""
        sizes: dict[str, int] = {}
        for operation in graph.operations:
            array = self.array(operation)
            if array is not None:
                _bind(sizes, operation, np.asarray(array).shape)
            if operation.kind == "select_rows":
                _bind(sizes, operation, (len(self._named(self.inputs, _ROWS, "input")),))
        return sizes

    @staticmethod
    def _named(arrays: Arrays, name: str, what: str) -> Array:
        array = arrays.get(name)
        if array is None:
            raise RequestError(f"no {what} {name!r} is given, there are {', '.join(map(repr, arrays)) or 'none'}")
        return array


def _bind(sizes: dict[str, int], operation: Operation, shape: tuple[int, ...]) -> None:
    value = operation.result
    dims = value.type.dims[: len(shape)] if operation.kind == "select_rows" else value.type.dims
    if len(shape) != len(dims):
        raise RequestError(f"%{value.name} is {value.type}, got an array of shape {list(shape)}")
    for extent, size in zip(dims, shape, strict=True):
        known = sizes.setdefault(extent.name, size) if isinstance(extent, Dim) else extent
        if known != size:
            raise RequestError(f"%{value.name} is {value.type} at {sizes}, got an array of shape {list(shape)}")
