"""Values, operations and graphs: LLMIR is SSA, and a graph is one straight line of operations.

    operation --results--> value --uses--> operation --operands--> value ...

Invariants, kept by the methods of Graph and checked by dialect/verifier.py:
    1. Every operand is a result of an earlier operation of the same graph.
    2. value.uses holds an operation once for each of its operands that is the value.
    3. Names of values are unique in a graph.

Operations are made and changed only through their graph. What an operation means is in dialect/ops.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from unsay.compiler.ir.dims import Constraint, Dim
from unsay.compiler.ir.types import TensorType

AttributeValue: TypeAlias = int | float | str | bool | tuple[int, ...] | tuple[float, ...]


class Value:
    """One result of one operation."""

    __slots__ = ("name", "producer", "type", "uses")

    def __init__(self, name: str, tensor_type: TensorType, producer: Operation) -> None:
        self.name = name
        self.type = tensor_type
        self.producer = producer
        self.uses: list[Operation] = []

    def __repr__(self) -> str:
        return f"%{self.name} : {self.type}"


class Operation:
    """`results = kind(operands) {attributes}`; location is (line, column) in the text it came from, or (0, 0)."""

    __slots__ = ("attributes", "kind", "location", "operands", "results")

    def __init__(
        self,
        kind: str,
        operands: tuple[Value, ...],
        attributes: Mapping[str, AttributeValue],
        location: tuple[int, int] = (0, 0),
    ) -> None:
        self.kind = kind
        self.operands = operands
        self.attributes = dict(attributes)
        self.location = location
        self.results: tuple[Value, ...] = ()

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def integer(self, name: str) -> int:
        """An integer attribute."""
        value = self.attributes[name]
        assert isinstance(value, int), (self.kind, name, value)
        return value

    def number(self, name: str) -> float:
        """A float attribute."""
        value = self.attributes[name]
        assert isinstance(value, float), (self.kind, name, value)
        return value

    def string(self, name: str) -> str:
        """A string attribute."""
        value = self.attributes[name]
        assert isinstance(value, str), (self.kind, name, value)
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """A tuple of integers."""
        value = self.attributes[name]
        assert isinstance(value, tuple) and all(isinstance(item, int) for item in value), (self.kind, name, value)
        return value  # pyright: ignore[reportReturnType]

    def flag(self, name: str) -> bool:
        """A bool attribute."""
        value = self.attributes[name]
        assert isinstance(value, bool), (self.kind, name, value)
        return value

    def __repr__(self) -> str:
        return f"{', '.join(f'%{v.name}' for v in self.results)} = {self.kind}(...)"


class Graph:
    """A named list of operations, the dimensions their types may name, and what holds of those.

    `sema` are remarks on the whole graph that change no meaning: dynamic_batch = "B" and the like (dialect/sema.py).
    `location` is where the text says them, or (0, 0).
    """

    def __init__(
        self,
        name: str,
        dims: Iterable[Dim],
        constraints: Iterable[Constraint] = (),
        sema: Mapping[str, AttributeValue] | None = None,
    ) -> None:
        self.name = name
        self.dims = {dim.name: dim for dim in dims}
        self.constraints = tuple(constraints)
        self.sema = dict(sema or {})
        self.location: tuple[int, int] = (0, 0)
        self.operations: list[Operation] = []
        self._names: set[str] = set()

    def add(
        self,
        kind: str,
        operands: Iterable[Value] = (),
        attributes: Mapping[str, AttributeValue] | None = None,
        results: Iterable[tuple[str, TensorType]] = (),
        *,
        before: Operation | None = None,
        location: tuple[int, int] = (0, 0),
    ) -> Operation:
        """Append an operation, or insert it before another, whose place in the text is its own then, if none is given;
        a result name already taken gets a numbered suffix."""
        location = before.location if before is not None and location == (0, 0) else location
        operation = Operation(kind, tuple(operands), attributes or {}, location)
        operation.results = tuple(Value(self._unique(name), kind_, operation) for name, kind_ in results)
        for operand in operation.operands:
            operand.uses.append(operation)
        position = len(self.operations) if before is None else self.operations.index(before)
        self.operations.insert(position, operation)
        return operation

    def replace(self, old: Value, new: Value) -> None:
        """Give every use of `old` to `new`, which is of the same type, so that users stay well typed."""
        assert old.type == new.type, (old, new)
        for user in old.uses:
            user.operands = tuple(new if operand is old else operand for operand in user.operands)
        new.uses.extend(old.uses)
        old.uses.clear()

    def substitute(self, operation: Operation, values: Iterable[Value]) -> None:
        """Put other values in place of an operation's results, under their names, and erase it."""
        for old, new in zip(operation.results, values, strict=True):
            self.replace(old, new)
            old.name, new.name = new.name, old.name
        self.erase(operation)

    def erase(self, operation: Operation) -> None:
        """Remove an operation whose results nothing uses."""
        assert not any(value.uses for value in operation.results), operation
        for operand in operation.operands:
            operand.uses.remove(operation)
        self._names.difference_update(value.name for value in operation.results)
        self.operations.remove(operation)

    def copy(self) -> Graph:
        """The same graph, sharing nothing that changes."""
        copy = Graph(self.name, self.dims.values(), self.constraints, self.sema)
        copy.location = self.location
        made: dict[Value, Value] = {}
        for operation in self.operations:
            twin = copy.add(
                operation.kind,
                [made[operand] for operand in operation.operands],
                operation.attributes,
                [(value.name, value.type) for value in operation.results],
                location=operation.location,
            )
            made.update(zip(operation.results, twin.results, strict=True))
        return copy

    def become(self, other: Graph) -> None:
        """Take over everything of another graph but its name, which nothing else may use afterwards."""
        self.dims, self.constraints, self.sema = other.dims, other.constraints, other.sema
        self.operations, self._names = other.operations, other._names

    def _unique(self, name: str) -> str:
        candidate, suffix = name, 0
        while candidate in self._names:
            suffix += 1
            candidate = f"{name}.{suffix}"
        self._names.add(candidate)
        return candidate
