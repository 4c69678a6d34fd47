"""What a symbolic execution keeps: cells of memory, loops, facts about indexes, and the World around it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from unsay.compiler.verify.kernels.affine import Affine, Symbol, of
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.text import KernelTextError
from unsay.compiler.verify.kernels.values import OPAQUE, Opaque, Pointer, Scalar, Value, Vector, is_opaque, lanewise
from unsay.compiler.verify.smt import Term, z3

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.machine import Machine


class World(Protocol):
    """What a claim knows of memory outside the kernel."""

    @property
    def variable_range(self) -> tuple[int, int]:
        """Within which i64 variables stay; it is checked that loops keep them there."""
        ...

    @property
    def has_data(self) -> bool:
        """Whether anything but indexes matters."""
        ...

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        """The scalar of this type that lies there before the kernel writes."""
        ...

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        """Called for every load and store."""
        ...

    def enter(self, machine: Machine, name: str, arguments: Sequence[Value]) -> bool:
        """Called for every call of a function of the module, and of `deal`; True if it is not to be executed."""
        ...


@dataclass(slots=True)
class Loop:
    """One loop over indexes begin, begin + step .. below end. Its variables by name of their slot: `before` the loop,
    at the `start` of the iteration, `after` it, and what they are called at the end of the loop."""

    name: str
    index: Affine
    symbol: Symbol
    begin: Affine
    end: Affine
    before: dict[str, Value] = field(default_factory=dict[str, Value])
    start: dict[str, Value] = field(default_factory=dict[str, Value])
    after: dict[str, Value] = field(default_factory=dict[str, Value])
    end_values: dict[str, Value] = field(default_factory=dict[str, Value])
    touched: list[Touch] = field(default_factory=list["Touch"])

    def covers(self, end: int, step: int) -> bool:
        """Whether it goes over 0, step, 2 * step .. below `end`, all of them."""
        return (self.begin, self.end) == (Affine(), Affine(end)) and self.index == of(self.symbol) * step

    def pairs(self) -> Iterator[tuple[Touch, Touch]]:
        """(load, store) of one object in an iteration."""
        for load, store in itertools.product(self.touched, self.touched):
            if store.is_write and not load.is_write and store.pointer.object == load.pointer.object:
                yield load, store


@dataclass(frozen=True, slots=True)
class Touch:
    """A load or store in an iteration."""

    pointer: Pointer
    size: int
    is_write: bool


@dataclass(frozen=True, slots=True)
class Cell:
    """A stored value; `loops`: the loops that have stored one like it in every iteration."""

    kind: str
    value: Value
    loops: tuple[Loop, ...] = ()


Memory = dict[str, dict[Affine, Cell]]


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition on indexes, and the names in it."""

    term: Term
    names: frozenset[str]

    @classmethod
    def of(cls, term: Term) -> Fact:
        """Of a Z3 condition."""
        return cls(term, frozenset(str(constant) for constant in constants(term)))


def constants(term: Term) -> list[Term]:
    """The free constants of a term, each once."""
    found: dict[int, Term] = {}
    seen: set[int] = set()
    stack = [term]
    while stack:
        at = stack.pop()
        if at.get_id() in seen:
            continue
        seen.add(at.get_id())
        if at.num_args() == 0 and at.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            found[at.get_id()] = at
        stack.extend(at.children())
    return list(found.values())


def iteration_that_stored(stored: Affine, wanted: Affine, loop: Loop) -> Affine | None:
    """The iteration of a loop that stored at `wanted`, where the distance between stores divides."""
    factor = stored.factor(loop.symbol)
    rest = wanted - stored.with_({loop.symbol: Affine()})
    if not factor or any(number % factor for number in (rest.constant, *(f for _, f in rest.terms))):
        return None
    solution = Affine(rest.constant // factor)
    for symbol, number in rest.terms:
        solution = solution + of(symbol) * (number // factor)
    inside = loop.symbol.low <= solution.low and solution.high <= loop.symbol.high
    return solution if inside else None


def chosen(condition: Term, yes: Scalar, no: Scalar) -> Scalar:
    """`yes` where the condition holds."""
    if isinstance(yes, Opaque) or isinstance(no, Opaque):
        return OPAQUE
    if isinstance(yes, Lane):
        assert isinstance(no, Lane)
        return Lane(z3.If(condition, yes.term, no.term), min(yes.low, no.low), max(yes.high, no.high))
    return z3.If(condition, yes, no)


def choice(condition: Value, yes: Value, no: Value) -> Value:
    """The same for vectors, by one condition or one for each lane."""
    if isinstance(yes, Vector) and not isinstance(condition, Vector | Opaque):
        condition = Vector((condition,) * len(yes))
    return lanewise(chosen, condition, yes, no)


def merged(condition: Value, new: Memory, old: Memory, has_data: bool) -> Memory:
    """Memory after an `if`: what it changed is chosen by the condition."""
    for name, cells in new.items():
        for offset, cell in list(cells.items()):
            was = old.get(name, {}).get(offset)
            if was is cell or is_opaque(cell.value) or (not has_data and not isinstance(cell.value, Affine)):
                continue
            if was is None and not has_data:  # a variable of the branch alone
                del cells[offset]
                continue
            if was is None or isinstance(cell.value, Affine | Pointer) or isinstance(condition, Opaque):
                raise KernelTextError(f"{name}[{offset}] is stored under a condition only")
            cells[offset] = replace(cell, value=choice(condition, cell.value, was.value))
    return new


def copied(memory: Mapping[str, Mapping[Affine, Cell]]) -> Memory:
    """The same cells, in tables of their own."""
    return {name: dict(cells) for name, cells in memory.items()}
