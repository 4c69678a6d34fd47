"""Which memory the values of a graph take, how much at most, and that values live at one time do not share any.

A value lives from the operation that makes it to the last that reads it, both included; where stages are written down
(sema.stage), from stage to stage, since all operations of a stage may run at once:

    stage     0    1    2    3
    x         [=========]            offset 0
    y              [====]            offset A: y is made in the stage that reads x
    z                   [====]       offset B, or 0 if x was last read in stage 1

What comes from outside has no memory here (weight, input, constant, tokens); a reshape reads its operand's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from unsay.compiler.dialect.sema import OFFSETS, STAGE
from unsay.compiler.ir.bounds import most
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.errors import IrError
from unsay.isa.formats import QUANTISED_ACTIVATIONS, DType, activation_bytes

_OUTSIDE = frozenset({"weight", "input", "constant", "tokens", "output"})
_ELEMENT_BYTES = {
    DType.F64: 8, DType.I64: 8, DType.F32: 4, DType.I32: 4, DType.F16: 2, DType.BF16: 2, DType.I8: 1, DType.BOOL: 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Life:
    """A value in memory: at most `num_bytes`, during first..last, which are stages or places in the graph."""

    value: Value
    num_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Planned:
    """A line of the report. offset: in the arena of the device, in bytes."""

    name: str
    device: str
    offset: int
    num_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The report. arena_bytes: the end of the last value of each device. by: what first and last count."""

    graph: str
    by: str
    arena_bytes: dict[str, int]
    values: tuple[Planned, ...]

    def to_json(self) -> str:
        """The plan as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def to_text(self) -> str:
        """A table: offset, bytes, when, name."""
        totals = [f"{device}: {size} bytes" for device, size in self.arena_bytes.items()]
        lines = [f"{self.graph}, {'; '.join(totals) or 'no memory'}"]
        for line in self.values:
            when = f"{line.first}..{line.last}"
            lines.append(f"{line.device:<4}{line.offset:>12}{line.num_bytes:>12}  {self.by} {when:<9} %{line.name}")
        return "\n".join(lines) + "\n"


def lives(graph: Graph) -> list[Life]:
    """Every value that needs memory, in order of birth; raises IrError for one that is not stored as it is typed."""
    times = {operation: _time(operation, index) for index, operation in enumerate(graph.operations)}
    end = max(times.values(), default=0)
    return [
        Life(value, _most_bytes(graph, value), times[operation], _last_read(value, times, end))
        for operation in graph.operations
        if operation.kind not in _OUTSIDE and operation.kind != "reshape"
        for value in operation.results
    ]


def memory_plan(graph: Graph) -> MemoryPlan:
    """The plan that is written down in a graph (sema.offsets); raises IrError where an operation has none."""
    planned = sorted(map(_planned, lives(graph)), key=lambda line: (line.device, line.first, line.offset))
    totals: dict[str, int] = {}
    for line in planned:
        totals[line.device] = max(totals.get(line.device, 0), line.offset + line.num_bytes)
    by = "stage" if any(STAGE in operation.attributes for operation in graph.operations) else "operation"
    return MemoryPlan(graph.name, by, totals, tuple(planned))


def check_memory(graph: Graph) -> None:
    """Raise IrError where two values that live at one time share memory, or one leaves the arena its graph states."""
    alive: list[Planned] = []
    for life in sorted(lives(graph), key=lambda life: life.first):
        line = _planned(life)
        _check_bound(graph, life, line)
        alive = [other for other in alive if other.last >= line.first]
        for other in alive:
            if line.device == other.device and _overlap(line, other):
                message = f"%{line.name} lies on %{other.name}, which lives at the same time; run plan_memory"
                raise IrError(message, *life.value.producer.location)
        alive.append(line)


def _check_bound(graph: Graph, life: Life, line: Planned) -> None:
    bound, end = graph.sema.get(f"arena_bytes.{line.device}"), line.offset + line.num_bytes
    if isinstance(bound, int) and end > bound:
        message = f"%{line.name} ends at byte {end} of the {line.device}, arena_bytes.{line.device} is {bound}"
        raise IrError(f"{message}; run plan_memory", *life.value.producer.location)


def _overlap(a: Planned, b: Planned) -> bool:
    return a.offset < b.offset + b.num_bytes and b.offset < a.offset + a.num_bytes


def _planned(life: Life) -> Planned:
    operation = life.value.producer
    offsets = operation.attributes.get(OFFSETS, ())
    if not isinstance(offsets, tuple) or len(offsets) != len(operation.results) or not all(map(_is_offset, offsets)):
        message = f"all operations that make values have {OFFSETS}, one for each, got {offsets!r}; run plan_memory"
        raise IrError(f"{operation!r}: {message}", *operation.location)
    offset = operation.integers(OFFSETS)[operation.results.index(life.value)]
    return Planned(life.value.name, life.value.type.device, offset, life.num_bytes, life.first, life.last)


def _is_offset(value: int | float) -> bool:
    return type(value) is int and value >= 0


def _time(operation: Operation, index: int) -> int:
    return operation.integer(STAGE) if STAGE in operation.attributes else index


def _last_read(value: Value, times: Mapping[Operation, int], end: int) -> int:
    """When the value, or what a reshape of it is called, is read for the last time; results live to the end."""
    last = times[value.producer]
    for user in value.uses:
        if user.kind == "reshape":
            last = max(last, _last_read(user.result, times, end))
        last = max(last, end if user.kind == "output" else times[user])
    return last


def _most_bytes(graph: Graph, value: Value) -> int:
    tensor_type = value.type
    if tensor_type.dtype in QUANTISED_ACTIVATIONS:
        columns = tensor_type.dims[-1]
        assert isinstance(columns, int), value
        return activation_bytes(tensor_type.dtype, most(tensor_type.dims[:-1], graph.constraints), columns)
    size = _ELEMENT_BYTES.get(tensor_type.dtype)
    if size is None:
        raise IrError(f"%{value.name} : {tensor_type} has no size in memory", *value.producer.location)
    return size * most(tensor_type.dims, graph.constraints)
