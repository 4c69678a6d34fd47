"""Wrong results of passes: a graph after a pass, changed in one place so that it computes something else.

Every change is one a faulty rewrite could make, and none can be right: operands of commutative operations are not
swapped, a value is only replaced by one that is not equal (`numbered`), remarks are left alone, and only what the
outputs or a cache depend on is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value

COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "equal", "and", "or"})
_FROM_OUTSIDE = frozenset({"weight", "input", "tokens", "constant", "iota"})


Numbers = dict[Value, int]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change to a graph: `apply` makes it on a copy, in which operations have the same places."""

    name: str
    apply: Callable[[Graph], None]


def mutants(graph: Graph) -> Iterator[Mutant]:
    """All changes of the kinds below, of operations that something seen depends on."""
    live, numbers = _live(graph), numbered(graph)
    for place, operation in enumerate(graph.operations):
        if operation in live:
            for make in (_swapped, _other_attributes, _dropped, _other_weight, _merged, _rewired, _lost):
                yield from make(graph, place, operation, numbers)


def numbered(graph: Graph) -> Numbers:
    """A number for each value, the same for values that are plainly equal: one operation on equal operands."""
    keys: dict[object, int] = {}
    numbers: Numbers = {}
    for operation in graph.operations:
        operands = [numbers[operand] for operand in operation.operands]
        operands = sorted(operands) if operation.kind in COMMUTATIVE else operands
        meant = sorted((name, repr(value)) for name, value in operation.attributes.items() if _is_meant(name))
        for index, value in enumerate(operation.results):
            key = (operation.kind, tuple(operands), tuple(meant), str(value.type), index)
            unique = key if operation.kind != "attention" else operation
            numbers[value] = keys.setdefault(unique, len(keys))
    return numbers


def _is_meant(name: str) -> bool:
    return not name.startswith("sema.")


def _swapped(_graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """Two operands of one type change places."""
    if operation.kind in COMMUTATIVE:
        return
    operands = operation.operands
    for i, j in permutations(range(len(operands)), 2):
        if i < j and operands[i].type == operands[j].type and numbers[operands[i]] != numbers[operands[j]]:
            order = list(range(len(operands)))
            order[i], order[j] = j, i
            yield Mutant(f"{operation.kind} with operands {i} and {j} swapped", _reads(place, order))


def _reads(place: int, order: list[int]) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        operation = graph.operations[place]
        rewire(operation, [operation.operands[index] for index in order])

    return apply


def _other_attributes(_graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """An attribute is one off, a scale is dropped, a choice is another."""
    for name, value in operation.attributes.items():
        if not _is_meant(name) or (operation.kind in _FROM_OUTSIDE and name != "value"):
            continue
        for other in others(value):
            yield Mutant(f"{operation.kind} with {name} = {other!r} for {value!r}", _sets(place, name, other))


def others(value: AttributeValue) -> list[AttributeValue]:
    """Values an attribute might have by mistake: one off, 1, nearly the same, another choice."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [1.0 if value != 1.0 else 2.0, value * 1.0000001 if value else 1e-30]
    if isinstance(value, tuple):
        return [(*value[:-1], value[-1] + 1), value[::-1]] if value and value[::-1] != value else [(*value, 1)]
    return [_CHOICES[value]] if value in _CHOICES else []


_CHOICES = {"f32": "q8w", "q8w": "q8a", "q8a": "f32", "halves": "adjacent", "adjacent": "halves", "none": "tanh"}


def _sets(place: int, name: str, value: AttributeValue) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        graph.operations[place].attributes[name] = value

    return apply


def _dropped(_graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """An operation is left out: its operand stands for its result."""
    for index, operand in enumerate(operation.operands):
        if len(operation.results) == 1 and operand.type == operation.result.type:
            yield Mutant(f"{operation.kind} dropped for its operand {index}", _drops(place, index))


def _drops(place: int, index: int) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        operation = graph.operations[place]
        graph.replace(operation.result, operation.operands[index])
        graph.erase(operation)

    return apply


def _other_weight(graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """A weight is that of another tensor."""
    if operation.kind != "weight":
        return
    names = [op.attributes["tensor"] for op in graph.operations if op.kind == "weight"]
    others = [name for name in names if name != operation.attributes["tensor"]]
    if others:
        other = others[place % len(others)]
        yield Mutant(f"weight {other} for {operation.attributes['tensor']}", _sets(place, "tensor", other))


def _merged(graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """Two unequal operations of one kind are taken for one."""
    if operation.kind in ("attention", "output"):
        return
    for other, first in enumerate(graph.operations[:place]):
        if first.kind == operation.kind and _types(first) == _types(operation) and _differ(first, operation, numbers):
            yield Mutant(
                f"{operation.kind} {operation.results[0].name} merged with {first.results[0].name}",
                _merges(place, other),
            )
            return


def _differ(first: Operation, operation: Operation, numbers: Numbers) -> bool:
    return all(numbers[a] != numbers[b] for a, b in zip(first.results, operation.results, strict=True))


def _types(operation: Operation) -> list[object]:
    return [value.type for value in operation.results]


def _merges(place: int, other: int) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        for old, new in zip(graph.operations[place].results, graph.operations[other].results, strict=True):
            graph.replace(old, new)

    return apply


def _rewired(graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """An operand is another value of its type, made by another operation before."""
    for index, operand in enumerate(operation.operands):
        found = _another(graph, place, operand, numbers)
        if found is not None:
            yield Mutant(f"{operation.kind} reads {found[2]} for {operand.name}", _takes(place, index, found[:2]))


def _another(graph: Graph, place: int, operand: Value, numbers: Numbers) -> tuple[int, int, str] | None:
    for where in range(place - 1, -1, -1):
        for which, value in enumerate(graph.operations[where].results):
            if numbers[value] != numbers[operand] and value.type == operand.type:
                return where, which, value.name
    return None


def _takes(place: int, index: int, source: tuple[int, int]) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        operation = graph.operations[place]
        operands = list(operation.operands)
        operands[index] = graph.operations[source[0]].results[source[1]]
        rewire(operation, operands)

    return apply


def _lost(_graph: Graph, place: int, operation: Operation, numbers: Numbers) -> Iterator[Mutant]:
    """An operand that may be left out is left out: a bias, a mask."""
    if operation.kind in ("linear", "linear_add", "conv2d", "conv2d_relu", "sdpa", "layer_norm", "matmul_silu"):
        fewer = list(range(len(operation.operands) - 1))
        least = {"linear": 2, "linear_add": 3, "conv2d": 2, "conv2d_relu": 2, "sdpa": 3, "layer_norm": 2}
        if len(fewer) >= least.get(operation.kind, 2):
            yield Mutant(f"{operation.kind} without its last operand", _reads(place, fewer))


def rewire(operation: Operation, operands: list[Value]) -> None:
    """Give an operation other operands, and keep the uses of values right."""
    for operand in operation.operands:
        operand.uses.remove(operation)
    operation.operands = tuple(operands)
    for operand in operands:
        operand.uses.append(operation)


def _live(graph: Graph) -> set[Operation]:
    waiting = [operation for operation in graph.operations if operation.kind in ("output", "attention")]
    live: set[Operation] = set()
    while waiting:
        operation = waiting.pop()
        if operation not in live:
            live.add(operation)
            waiting += [operand.producer for operand in operation.operands]
    return live
