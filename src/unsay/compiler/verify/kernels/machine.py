"""Executes the text of a kernel symbolically, once for all inputs.

A loop is executed once, for an unknown iteration: its variables (stack slots written in it) are unknown at its start,
what they were before, what they are called at the start and what the iteration leaves in them is kept as a `Loop`. So
a claim about a loop is proved by induction: it holds before, and an iteration keeps it. After the loop its variables
are unknown again.

An `if` is executed and merged: what it leaves in memory is `If(condition, new, old)`. Index conditions on the way to a
place are kept in `facts`, what quotients, products and choices of indexes are in `definitions`. What memory holds and
who looks at accesses is a `World`: one for each kind of claim. `frame.py` is the flow of control, `lines.py` what a
line does, `indexes.py` the arithmetic of i64.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine, Symbol, of
from unsay.compiler.verify.kernels.frame import Frame
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.state import Cell, Fact, Loop, Memory, Touch, World, constants, iteration_that_stored
from unsay.compiler.verify.kernels.text import FunctionText, KernelTextError
from unsay.compiler.verify.kernels.tiles import Tiles
from unsay.compiler.verify.kernels.values import (
    OPAQUE,
    Opaque,
    Pointer,
    Scalar,
    Value,
    Vector,
    bits,
    element,
    is_float,
    is_opaque,
    lanes_of,
    num_bytes,
)
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.smt import Term, decide, z3


class Machine:
    """Executes functions of one module in one world."""

    def __init__(self, module: Mapping[str, FunctionText], world: World) -> None:
        self.module = module
        self.world = world
        self.memory: Memory = {}
        self.facts: list[Fact] = []
        self.definitions: list[Fact] = []
        self.loops: list[Loop] = []
        self.comment = ""
        self.tiles = Tiles()
        self.stack_bytes: dict[str, int] = {}
        self.quotients: dict[tuple[Affine, Affine], Affine] = {}
        self.remainders: dict[tuple[Affine, Affine], Affine] = {}
        self.products: dict[Symbol, tuple[Affine, Affine]] = {}
        self._open: list[Loop] = []
        self._count = 0
        self._ranges: dict[str, Term] = {}
        self._answers: dict[tuple[int, ...], tuple[Result, object]] = {}
        self._leaves: dict[str, tuple[Pointer, str]] = {}

    def run(self, name: str, *arguments: Value) -> Value | None:
        """Execute a function; its result."""
        function = self.module[name]
        names = [parameter.text for parameter in function.parameters]
        return Frame(self, function, self._new(name), dict(zip(names, arguments, strict=True))).run()

    @property
    def around(self) -> Loop | None:
        """The innermost loop of which an iteration is executed."""
        return self._open[-1] if self._open else None

    def _new(self, name: str) -> str:
        self._count += 1
        return f"{name}'{self._count}"

    def symbol(self, name: str, low: int, high: int) -> Symbol:
        """A new unknown integer."""
        return self.at_most(Symbol(self._new(name), low, high), high)

    def at_most(self, symbol: Symbol, high: int) -> Symbol:
        """The same symbol, now known to be no larger than this."""
        self._ranges[symbol.name] = z3.And(symbol.low <= z3.Int(symbol.name), z3.Int(symbol.name) <= high)
        return replace(symbol, high=high)

    def unknown(self, name: str, kind: str) -> Value:
        """A new value of a type; where data does not matter, only of an index."""
        if not self.world.has_data and element(kind) != "i64":
            return OPAQUE
        count = lanes_of(kind)
        made = [self._unknown(f"{name}.{lane}", element(kind)) for lane in range(max(1, count))]
        return Vector(tuple(made)) if count else made[0]

    def _unknown(self, name: str, kind: str) -> Scalar:
        if kind == "i64":
            return of(self.symbol(name, *self.world.variable_range))
        term = z3.BitVec(self._new(name), bits(kind))
        return term if is_float(kind) else lanes.word(term)

    def define(self, *terms: Term) -> None:
        """Note what a new symbol is: conditions that some value of it always meets."""
        self.definitions += map(Fact.of, terms)

    def implied(self, claim: Term) -> Result:
        """Whether the facts imply a claim: those about its symbols, else also those about what these are tied to, and
        so on. What few facts imply, all do; so only the last answer can be a no."""
        asked = Fact.of(claim)
        wanted, known, near = set(asked.names), [*self.facts, *self.definitions], [asked]
        used: list[Term] = []
        result = Result(Status.UNKNOWN, "there are no facts")
        while near:
            near = [fact for fact in known if not wanted.isdisjoint(fact.names)]
            known = [fact for fact in known if wanted.isdisjoint(fact.names)]
            used += [fact.term for fact in near]
            wanted.update(name for fact in near for name in fact.names)
            result = self._decided(claim, used, wanted)
            if result.status is Status.PROVED:
                break
        return result

    def _decided(self, claim: Term, used: list[Term], names: set[str]) -> Result:
        """What Z3 says, asked once. The terms are kept with the answer, so that no other term gets their ids."""
        key = (claim.get_id(), *(term.get_id() for term in used))
        if key not in self._answers:
            ranges = [self._ranges[name] for name in sorted(names) if name in self._ranges]
            self._answers[key] = decide(claim, *used, *ranges), (claim, list(used))
        return self._answers[key][0]

    def named_leaf(self, pointer: Pointer, kind: str) -> Term:
        """The bits of memory at a pointer as a constant with a name of its own, which `renamed` can move."""
        name = f"{pointer.object}[{pointer.offset}]:{kind}"
        self._leaves[name] = (pointer, kind)
        return z3.BitVec(name, bits(kind))

    def load(self, pointer: Pointer, kind: str) -> Value:
        """The value at a pointer."""
        self._touch(Touch(pointer, num_bytes(kind), is_write=False))
        if pointer.other is not None:
            return OPAQUE
        cells = self.memory.get(pointer.object, {})
        cell = cells.get(pointer.offset)
        if cell is not None and cell.kind == kind and not cell.loops:
            return cell.value
        found = self._from_loops(cells, pointer, kind)
        if found is not None:
            return found
        _check_untouched(cells, pointer, num_bytes(kind))
        size, count = bits(kind) // 8, lanes_of(kind)
        leaves = [self.world.leaf(self, pointer.at(size * lane), element(kind)) for lane in range(max(1, count))]
        return Vector(tuple(leaves)) if count else leaves[0]

    def store(self, pointer: Pointer, kind: str, value: Value) -> None:
        """Put a value at a pointer; where data does not matter, only an index is kept."""
        self._touch(Touch(pointer, num_bytes(kind), is_write=True))
        if pointer.other is None:
            value = value if self.world.has_data or element(kind) == "i64" else OPAQUE
            self.memory.setdefault(pointer.object, {})[pointer.offset] = Cell(kind, value)

    def _touch(self, touch: Touch) -> None:
        self.world.access(self, touch.pointer, touch.size, touch.is_write)
        for loop in self._open:
            loop.touched.append(touch)

    def _from_loops(self, cells: Mapping[Affine, Cell], pointer: Pointer, kind: str) -> Value | None:
        """What a loop has left there: the value of the iteration that stored at this offset."""
        for offset, cell in cells.items():
            if cell.kind == kind and len(cell.loops) == 1:
                iteration = iteration_that_stored(offset, pointer.offset, cell.loops[0])
                if iteration is not None:
                    return self.renamed(cell.value, {cell.loops[0].symbol: iteration})
        return None

    def renamed(self, value: Value, symbols: Mapping[Symbol, Affine]) -> Value:
        """A value as it is with other index symbols: memory is read at other places."""
        if isinstance(value, Vector):
            return Vector(tuple(self._renamed_scalar(lane, symbols) for lane in value.lanes))
        return self._renamed_scalar(value, symbols)

    def _renamed_scalar(self, scalar: Scalar, symbols: Mapping[Symbol, Affine]) -> Scalar:
        if isinstance(scalar, Lane):
            return replace(scalar, term=self._renamed(scalar.term, symbols))
        return scalar if isinstance(scalar, Opaque | Pointer | Affine) else self._renamed(scalar, symbols)

    def _renamed(self, term: Term, symbols: Mapping[Symbol, Affine]) -> Term:
        pairs: list[tuple[Term, Term]] = []
        for constant in constants(term):
            if str(constant) not in self._leaves:
                raise KernelTextError(f"{constant} of another iteration is not known")
            pointer, kind = self._leaves[str(constant)]
            moved = Pointer(pointer.object, pointer.offset.with_(symbols))
            pairs.append((constant, self.named_leaf(moved, kind)))
        return z3.substitute(term, *pairs) if pairs else term

    @contextmanager
    def inside(self, loop: Loop) -> Generator[None]:
        """While an iteration of the loop is executed."""
        self._open.append(loop)
        with self.knowing(loop.begin.term() <= loop.index.term(), loop.index.term() < loop.end.term()):
            yield
        self._open.pop()

    @contextmanager
    def knowing(self, *terms: Term) -> Generator[None]:
        """While these conditions hold."""
        known = len(self.facts)
        self.facts += map(Fact.of, terms)
        yield
        del self.facts[known:]


def _check_untouched(cells: Mapping[Affine, Cell], pointer: Pointer, size: int) -> None:
    """What is read as it was before the kernel has not been written since, for all values of all indexes."""
    for offset, cell in cells.items():
        distance = pointer.offset - offset
        apart = distance.low >= num_bytes(cell.kind) or distance.high <= -size
        if not apart and not is_opaque(cell.value):
            raise KernelTextError(f"{pointer.object}[{pointer.offset}] may be what was stored at [{offset}]")
