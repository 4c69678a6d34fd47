"""One kernel of Triton IR, raised to a graph of whole tensors for one launch.

Every operation has a row in operations.py. Values are abstract (values.py): index arithmetic, pointers and masks stay
symbolic until a load or a store uses them (access.py); data becomes operations on whole tensors (tiles.py). A loop is
walked once, for all its iterations (loops.py). What cannot be raised is noted with line and column, and the walk goes
on without it, so that all of it is named at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from unsay.compiler.frontend.triton.affine import Affine, Symbol
from unsay.compiler.frontend.triton.folds import REDUCTIONS, contract
from unsay.compiler.frontend.triton.launch import Launch
from unsay.compiler.frontend.triton.programs import Programs
from unsay.compiler.frontend.triton.text import Block, Op, Type, Value
from unsay.compiler.frontend.triton.tiles import Data, RefusalError, Splat, Tile, Tiles, hints_of
from unsay.compiler.frontend.triton.values import Abstract, Accumulated, Carried, Dot, Index, Mask, Pointer, Poison
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.core import Value as IrValue
from unsay.compiler.ir.types import DTYPES, TensorType
from unsay.errors import RequestError
from unsay.isa.formats import DType

MAX_OPS = 1 << 16
"""Operations walked, calls taken in place."""

_ENDS = frozenset({"scf.yield", "tt.return", "tt.reduce.return"})

Handler: TypeAlias = "Callable[[Kernel, Op, list[Abstract]], Abstract | tuple[Abstract, ...]]"


class Kernel:
    """Raises one function. `problems`: what could not be; `stored`: tensors by parameter, as the kernel leaves them."""

    def __init__(
        self, handlers: Mapping[str, Handler], functions: Mapping[str, Op], launch: Launch, graph: Graph
    ) -> None:
        self.problems: list[str] = []
        self.stored: dict[int, IrValue] = {}
        self.graph = graph
        self.tiles = Tiles(graph)
        self.programs = Programs(launch.grid)
        self.functions = functions
        self.env: dict[Value, Abstract] = {}
        self.guards: list[Affine] = []
        self.iterations: list[Symbol] = []
        self.reads: dict[int, set[Affine]] = {}
        self._handlers = handlers
        self._launch = launch
        self._inputs: dict[int, IrValue] = {}
        self._num_ops = 0
        self._num_symbols = 0
        self._calls: list[Op] = []

    def run(self, function: Op) -> None:
        """Walk the body, then make the stored tensors the graph's outputs, in the order of parameters."""
        self._bind(function.blocks[0].arguments)
        self.block(function.blocks[0])
        if not self.problems and not self.stored:
            self.problems.append(at(function, "the kernel stores nothing"))
        if not self.problems:
            self.graph.add("output", [self.stored[parameter] for parameter in sorted(self.stored)])

    def _bind(self, parameters: Sequence[Value]) -> None:
        given = self._launch.arguments
        if len(parameters) != len(given):
            takes = ", ".join(str(parameter.type) for parameter in parameters)
            raise RequestError(f"the launch has {len(given)} arguments, the kernel takes ({takes})")
        for position, (parameter, argument) in enumerate(zip(parameters, given, strict=True)):
            self.env[parameter] = _parameter(position, parameter.type, argument)

    def block(self, block: Block) -> tuple[Abstract, ...]:
        """Walk a block; what it yields."""
        for op in block.ops:
            if op.name in _ENDS:
                return tuple(self.env[operand] for operand in op.operands)
            self._op(op)
        return ()

    def _op(self, op: Op) -> None:
        """Bind the results of an operation: to Poison where it cannot be raised, or reads what could not."""
        self._num_ops += 1
        if self._num_ops > MAX_OPS:
            raise RequestError(f"the kernel has more than {MAX_OPS} operations")
        made: Abstract | tuple[Abstract, ...] = (Poison(),) * len(op.results)
        operands = [self.env[operand] for operand in op.operands]
        handler = self._handlers.get(op.name)
        if handler is None:
            self.problems.append(at(op, "no rule for it"))
        elif not any(isinstance(operand, Poison) for operand in operands):
            try:
                made = handler(self, op, operands)
            except RefusalError as refusal:
                self.problems.append(at(op, str(refusal)))
        made = made if isinstance(made, tuple) else (made,)
        self.env.update(zip(op.results, made, strict=True))

    def new_index(self) -> int:
        """A number no other symbol of the kernel has."""
        self._num_symbols += 1
        return self._num_symbols

    @contextmanager
    def iterating(self, iteration: Symbol, guards: Sequence[Affine]) -> Generator[None]:
        """In the body of a loop: loads and stores happen only where every guard is >= 0."""
        before = len(self.guards), len(self.iterations)
        self.guards.extend(guards)
        self.iterations.extend([iteration] if iteration.extent > 1 else [])
        try:
            yield
        finally:
            del self.guards[before[0] :], self.iterations[before[1] :]

    @contextmanager
    def entered(self, op: Op) -> Generator[None]:
        """In the body of a function that is called; a function in its own body is refused."""
        if op in self._calls:
            raise RefusalError("calls itself")
        self._calls.append(op)
        try:
            yield
        finally:
            self._calls.pop()

    def tensor(self, parameter: int) -> IrValue:
        """The tensor of a parameter as an input of the graph."""
        if parameter not in self._inputs:
            kind = self._launch.arguments[parameter]
            assert isinstance(kind, TensorType), (parameter, kind)
            name = f"arg{parameter}"
            self._inputs[parameter] = self.graph.add("input", (), {"name": name}, [(name, kind)]).result
        return self._inputs[parameter]

    def data(self, value: Abstract, dtype: DType, hints: Sequence[tuple[Affine, int]] = ()) -> Data:
        """A value as data of an element type; index arithmetic along the coordinates of what stands beside it."""
        match value:
            case Tile() | Splat():
                return value
            case Index():
                made = self.tiles.count(value.value, dtype, hints)
                return replace(made, holes=value.below) if value.below and isinstance(made, Tile) else made
            case Mask():
                return self._holds(value, hints)
            case Dot():
                return contract(self.tiles, value.a, value.b, [value.summed], value.dtype)
            case Carried() | Accumulated():
                raise RefusalError("reads what the loop carries, other than to accumulate into it")
            case Pointer():
                raise RefusalError("a pointer as data")
            case Poison():
                raise AssertionError(value)

    def _holds(self, mask: Mask, hints: Sequence[tuple[Affine, int]]) -> Data:
        total: Data = Splat(True, DType.BOOL)
        for term in mask.terms:
            counted = self.tiles.count(term, DType.I32, hints)
            holds = self.tiles.apply("greater_equal", counted, Splat(0, DType.I32))
            total = holds if total == Splat(True, DType.BOOL) else self.tiles.apply("and", total, holds)
        return total

    def all_data(self, op: Op, operands: Sequence[Abstract]) -> list[Data]:
        """Operands as data."""
        hints = hints_of(*operands)
        kinds = [dtype_of(operand.type) for operand in op.operands]
        return [self.data(operand, kind, hints) for operand, kind in zip(operands, kinds, strict=True)]

    def apply(self, kind: str, op: Op, operands: Sequence[Abstract]) -> Abstract:
        """One operation of LLMIR; accumulating into what a loop carries is only noted."""
        if kind in REDUCTIONS and len(operands) == 2:
            for onto, other in (operands, operands[::-1]):
                if isinstance(onto, Carried | Accumulated):
                    return self.accumulate(onto, kind, other, dtype_of(op.results[0].type))
        return self.tiles.apply(kind, *self.all_data(op, operands))

    def accumulate(self, onto: Carried | Accumulated, combine: str, other: Abstract, dtype: DType) -> Abstract:
        """carried combine other"""
        term = other if isinstance(other, Dot) else self.data(other, dtype)
        if isinstance(onto, Carried):
            return Accumulated(onto, combine, (term,))
        if onto.combine != combine:
            raise RefusalError(f"accumulates by {combine} what the loop has accumulated by {onto.combine}")
        return replace(onto, terms=(*onto.terms, term))


def at(op: Op, message: str) -> str:
    """A message with the place in the text it is about."""
    line, column = op.location
    return f"{line}:{column}: {op.name}: {message}"


def dtype_of(kind: Type) -> DType:
    """The element type of a type that is data."""
    dtype = DTYPES.get("bool" if kind.element == "i1" else kind.element)
    if dtype is None or kind.is_pointer:
        raise RefusalError(f"elements of {kind}")
    return dtype


def _parameter(position: int, kind: Type, given: TensorType | int | float) -> Abstract:
    """What a parameter is at this launch."""
    element = "bool" if kind.element == "i1" else kind.element
    if isinstance(given, TensorType):
        if kind.is_pointer and DTYPES.get(element) is given.dtype:
            return Pointer(position, Affine(0))
    elif not kind.is_pointer and isinstance(given, float) == element.startswith(("f", "bf")):
        return Splat(given, DTYPES[element]) if isinstance(given, float) else Index(Affine(given))
    raise RequestError(f"argument {position} of the launch is {given}, the kernel takes {kind}")
