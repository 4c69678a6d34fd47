"""Executes the text of a kernel symbolically, once for all inputs.

A loop is executed once, for an unknown iteration: its variables (stack slots written in it) are unknown at its start,
what they were before, what they are called at the start and what the iteration leaves in them is kept as a `Loop`. So
a claim about a loop is proved by induction: it holds before, and an iteration keeps it. After the loop its variables
are unknown again.

An `if` is executed and merged: what it leaves in memory is `If(condition, new, old)`. Index conditions on the way to a
place are kept in `facts`, what quotients, products and choices of indexes are in `definitions`. What memory holds and who looks at accesses is a `World`: one for each kind of claim.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine, Symbol, of
from unsay.compiler.verify.kernels.instructions import INTRINSICS, cast, compare, float_binary
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.text import FunctionText, KernelTextError, Line, Operand
from unsay.compiler.verify.kernels.values import (
    OPAQUE,
    Opaque,
    Pointer,
    Scalar,
    Value,
    bits,
    element,
    float_constant,
    is_float,
    is_opaque,
    lanes_of,
    lanewise,
    num_bytes,
)
from unsay.compiler.verify.obligation import NotProved, Result, Status
from unsay.compiler.verify.smt import Term, decide, z3

_LITERAL = re.compile(r"-?\d+")
_SPLAT = re.compile(r"splat \(\S+ (\S+)\)")
_ARRAY = re.compile(r"\[(\d+) x i8\]")
_LARGEST = (1 << 63) - 1


class World(Protocol):
    """What a claim knows of memory outside the kernel."""

    variable_range: tuple[int, int]
    """Within which i64 variables stay; it is checked that loops keep them there."""

    has_data: bool
    """Whether anything but indexes matters."""

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        """The scalar of this type that lies there before the kernel writes."""
        ...

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        """Called for every load and store."""
        ...

    def enter(self, machine: Machine, name: str, arguments: Sequence[Value]) -> bool:
        """Called for every call of a function of the module; True if it is not to be executed."""
        ...


@dataclass(slots=True)
class Loop:
    """One loop. variables by name of their slot: `before` the loop, at the `start` of the iteration, `after` it, and
    what they are called at the `end` of the loop."""

    name: str
    index: Affine
    symbol: Symbol
    begin: Affine
    end: Affine
    before: dict[str, Value] = field(default_factory=dict[str, Value])
    start: dict[str, Value] = field(default_factory=dict[str, Value])
    after: dict[str, Value] = field(default_factory=dict[str, Value])
    end_values: dict[str, Value] = field(default_factory=dict[str, Value])
    touched: list[tuple[Pointer, int, bool]] = field(default_factory=list[tuple[Pointer, int, bool]])


@dataclass(frozen=True, slots=True)
class Cell:
    """A stored value; `loops`: the loops that have stored one like it in every iteration."""

    kind: str
    value: Value
    loops: tuple[Loop, ...] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """A condition on indexes, and the names in it."""

    term: Term
    names: frozenset[str]

    @classmethod
    def of(cls, term: Term) -> Fact:
        """Of a Z3 condition."""
        return cls(term, frozenset(str(constant) for constant in constants(term)))


Memory = dict[str, dict[Affine, Cell]]


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
        self.stack_bytes: dict[str, int] = {}
        self._open: list[Loop] = []
        self._symbols = 0
        self._ranges: dict[str, Term] = {}
        self._answers: dict[tuple[int, ...], tuple[Result, object]] = {}
        self.quotients: dict[tuple[Affine, Affine], Affine] = {}
        self.products: dict[Symbol, tuple[Affine, Affine]] = {}
        self._frames = 0
        self._leaves: dict[str, tuple[Pointer, str]] = {}

    def run(self, name: str, *arguments: Value) -> Value | None:
        """Execute a function; its result."""
        function = self.module[name]
        self._frames += 1
        names = [parameter.text for parameter in function.parameters]
        frame = _Frame(self, function, f"{name}#{self._frames}", dict(zip(names, arguments, strict=True)))
        return frame.run()

    def define(self, *terms: Term) -> None:
        """Note what a new symbol is."""
        self.definitions += map(Fact.of, terms)

    def implied(self, claim: Term) -> Result:
        """Whether the facts about the symbols of a claim, and about all that those are tied to, imply it."""
        asked = Fact.of(claim)
        wanted, known, near = set(asked.names), [*self.facts, *self.definitions], [asked]
        used: list[Term] = []
        while near:
            near = [fact for fact in known if not wanted.isdisjoint(fact.names)]
            known = [fact for fact in known if wanted.isdisjoint(fact.names)]
            used += [fact.term for fact in near]
            wanted.update(name for fact in near for name in fact.names)
        key = (claim.get_id(), *(term.get_id() for term in used))
        if key not in self._answers:
            ranges = [self._ranges[name] for name in sorted(wanted) if name in self._ranges]
            self._answers[key] = decide(claim, *used, *ranges, timeout_ms=5000), (claim, used)
        return self._answers[key][0]

    def symbol(self, name: str, low: int, high: int) -> Symbol:
        """A new unknown integer."""
        self._symbols += 1
        made = Symbol(f"{name}'{self._symbols}", low, high)
        self._ranges[made.name] = z3.And(low <= z3.Int(made.name), z3.Int(made.name) <= high)
        return made

    def at_most(self, symbol: Symbol, high: int) -> Symbol:
        """The same symbol, now known to be no larger than this."""
        self._ranges[symbol.name] = z3.And(symbol.low <= z3.Int(symbol.name), z3.Int(symbol.name) <= high)
        return replace(symbol, high=high)

    def unknown(self, name: str, kind: str) -> Value:
        """A new value of a type; where data does not matter, only of an index."""
        if not self.world.has_data and element(kind) != "i64":
            return OPAQUE
        count = lanes_of(kind)
        if count:
            return tuple(self._unknown(f"{name}.{lane}", element(kind)) for lane in range(count))
        return self._unknown(name, kind)

    def _unknown(self, name: str, kind: str) -> Scalar:
        self._symbols += 1
        if kind == "i64":
            return of(self.symbol(name, *self.world.variable_range))
        term = z3.BitVec(f"{name}'{self._symbols}", bits(kind))
        return term if is_float(kind) else lanes.word(term)

    def named_leaf(self, pointer: Pointer, kind: str) -> Term:
        """The bits of memory at a pointer as a constant with a name of its own, which `renamed` can move."""
        name = f"{pointer.object}[{pointer.offset}]:{kind}"
        self._leaves[name] = (pointer, kind)
        return z3.BitVec(name, bits(kind))

    def load(self, pointer: Pointer, kind: str) -> Value:
        """The value at a pointer."""
        self._touch(pointer, num_bytes(kind), is_write=False)
        if pointer.other is not None:
            return OPAQUE
        cells = self.memory.get(pointer.object, {})
        cell = cells.get(pointer.offset)
        if cell is not None and cell.kind == kind and not cell.loops:
            return cell.value
        found = self._from_loops(cells, pointer, kind)
        if found is not None:
            return found
        self._check_untouched(cells, pointer, num_bytes(kind))
        size = bits(kind) // 8
        if lanes_of(kind):
            return tuple(self.world.leaf(self, pointer.at(size * i), element(kind)) for i in range(lanes_of(kind)))
        return self.world.leaf(self, pointer, kind)

    def _check_untouched(self, cells: Mapping[Affine, Cell], pointer: Pointer, size: int) -> None:
        """What is read as it was before the kernel has not been written since, for all values of all indexes."""
        for offset, cell in cells.items():
            distance = pointer.offset - offset
            apart = distance.low >= num_bytes(cell.kind) or distance.high <= -size
            if not apart and not is_opaque(cell.value):
                raise KernelTextError(f"{pointer.object}[{pointer.offset}] may be what was stored at [{offset}]")

    def store(self, pointer: Pointer, kind: str, value: Value) -> None:
        """Put a value at a pointer."""
        self._touch(pointer, num_bytes(kind), is_write=True)
        if pointer.other is None:
            self.memory.setdefault(pointer.object, {})[pointer.offset] = Cell(kind, value)

    def _touch(self, pointer: Pointer, size: int, is_write: bool) -> None:
        self.world.access(self, pointer, size, is_write)
        for loop in self._open:
            loop.touched.append((pointer, size, is_write))

    def _from_loops(self, cells: Mapping[Affine, Cell], pointer: Pointer, kind: str) -> Value | None:
        """What a loop has left there: the value of the iteration that stored at this offset."""
        for offset, cell in cells.items():
            if cell.kind == kind and len(cell.loops) == 1:
                iteration = _solve(offset, pointer.offset, cell.loops[0])
                if iteration is not None:
                    return self.renamed(cell.value, {cell.loops[0].symbol: iteration})
        return None

    def renamed(self, value: Value, symbols: Mapping[Symbol, Affine]) -> Value:
        """A value as it is with other index symbols: memory is read at other places."""
        if isinstance(value, tuple):
            return tuple(self.renamed(lane, symbols) for lane in value)
        if isinstance(value, Lane):
            return replace(value, term=self._renamed(value.term, symbols))
        return value if isinstance(value, Opaque | Pointer | Affine) else self._renamed(value, symbols)

    def _renamed(self, term: Term, symbols: Mapping[Symbol, Affine]) -> Term:
        pairs: list[tuple[Term, Term]] = []
        for constant in constants(term):
            if str(constant) in self._leaves:
                pointer, kind = self._leaves[str(constant)]
                moved = Pointer(pointer.object, pointer.offset.with_(symbols))
                pairs.append((constant, self.named_leaf(moved, kind)))
        return z3.substitute(term, *pairs) if pairs else term

    @contextmanager
    def inside(self, loop: Loop) -> Iterator[None]:
        """While an iteration of the loop is executed."""
        self._open.append(loop)
        known = len(self.facts)
        self.facts += map(Fact.of, (loop.begin.term() <= loop.index.term(), loop.index.term() < loop.end.term()))
        yield
        self.facts = self.facts[:known]
        self._open.pop()


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


def _solve(stored: Affine, wanted: Affine, loop: Loop) -> Affine | None:
    """The iteration that stored at `wanted`, where the distance between stores divides."""
    factor = stored.factor(loop.symbol)
    rest = wanted - stored.with_({loop.symbol: Affine()})
    if not factor or any(number % factor for number in (rest.constant, *(f for _, f in rest.terms))):
        return None
    solution = Affine(rest.constant // factor)
    for symbol, number in rest.terms:
        solution = solution + of(symbol) * (number // factor)
    inside = loop.symbol.low <= solution.low and solution.high <= loop.symbol.high
    return solution if inside else None


class _Frame:
    """One call of one function."""

    def __init__(self, machine: Machine, function: FunctionText, name: str, names: dict[str, Value]) -> None:
        self.machine = machine
        self.function = function
        self.name = name
        self.names = names
        self.result: Value | None = None
        self.returned = False
        lines = [line for block in function.blocks.values() for line in block]
        self._made_by = {line.result: line for line in lines if line.result}

    def run(self) -> Value | None:
        self._run_from("entry", None)
        assert self.returned, self.name
        return self.result

    def _run_from(self, label: str, stop: str | None, came_from: str = "") -> None:
        """Execute from a label until `stop`, or the end of the function."""
        while label != stop and not self.returned:
            if label.endswith(".head"):
                label, came_from = self._loop(label, came_from), label
            else:
                label, came_from = self._block(label), label

    def _block(self, label: str) -> str:
        """Execute a block; the label that follows."""
        for line in self.function.blocks[label]:
            if line.op == "comment":
                self.machine.comment = line.detail[0]
                continue
            if line.op == "ret":
                self.returned = True
                self.result = self.value(line.operands[0]) if line.operands else None
                return ""
            if line.op == "br":
                return self._branch(line)
            value = self._execute(line)
            if line.result:
                self.names[line.result] = value
        raise KernelTextError(f"{self.name}: block {label} does not end")

    def _branch(self, line: Line) -> str:
        if not line.operands:
            return line.detail[0]
        condition = self.value(line.operands[0])
        then, end = line.detail
        machine = self.machine
        if not isinstance(condition, Opaque):
            condition = z3.simplify(condition)
            if z3.is_true(condition) or z3.is_false(condition):
                return then if z3.is_true(condition) else end
        before = {name: dict(cells) for name, cells in machine.memory.items()}
        known = len(machine.facts)
        machine.facts += [] if isinstance(condition, Opaque) else [Fact.of(condition)]
        self._run_from(then, end)
        machine.facts = machine.facts[:known]
        if self.returned:  # the rest of the function is reached only otherwise
            self.returned, machine.memory = False, before
            machine.facts += [] if isinstance(condition, Opaque) else [Fact.of(z3.Not(condition))]
        else:
            machine.memory = _merged(condition, machine.memory, before, machine.world.has_data)
        return end

    def _loop(self, head: str, came_from: str) -> str:
        """Execute one unknown iteration; the label after the loop."""
        phi, test, branch = self.function.blocks[head]
        body, leave = branch.detail
        begin = next(o for o, label in zip(phi.operands, phi.detail, strict=True) if label == came_from)
        latch = next(label for label in phi.detail if label != came_from)
        step = self.function.blocks[latch][0].operands[1]
        loop = self._iteration(head, self.index(begin), self.index(test.operands[1]), self.index(step))
        assert phi.result
        self.names[phi.result] = loop.index
        slots = self._slots_written(body, leave)
        self._forget(slots, loop.start, loop.before, f"{head}.start")
        others = {name: dict(cells) for name, cells in self.machine.memory.items()}
        if loop.symbol.low <= loop.symbol.high:
            with self.machine.inside(loop):
                self._run_from(body, latch)
                self._check_ranges(loop)
        self._forget(slots, loop.end_values, loop.after, f"{head}.end")
        self._leave_stores(loop, others, slots)
        self.machine.loops.append(loop)
        return leave

    def _iteration(self, head: str, begin: Affine, end: Affine, step: Affine) -> Loop:
        """An unknown iteration: begin + step * k where the loop begins at a constant, else a symbol of its own."""
        machine, name = self.machine, head.removesuffix(".head")
        last = end.high - 1
        if step.is_constant and begin.is_constant:
            symbol = machine.symbol(name, 0, (last - begin.low) // step.constant)
            return Loop(head, begin + of(symbol) * step.constant, symbol, begin, end)
        symbol = machine.symbol(name, begin.low, max(begin.low, last))
        inside = z3.And(begin.term() <= of(symbol).term(), of(symbol).term() < end.term())
        if step.is_constant:
            turn = machine.symbol(f"{name}.turn", 0, max(0, last - begin.low))
            machine.define(z3.Implies(inside, of(symbol).term() == begin.term() + of(turn).term() * step.constant))
        if step.is_constant and step.constant > 1:
            whole = machine.implied(z3.Implies(inside, (of(symbol) + step).term() <= end.term()))
            symbol = machine.at_most(symbol, end.high - step.constant) if whole.status is Status.PROVED else symbol
        return Loop(head, of(symbol), symbol, begin, end)

    def _forget(
        self, slots: Sequence[tuple[str, str]], named: dict[str, Value], was: dict[str, Value], why: str
    ) -> None:
        """Make variables unknown: `was` is what they held, `named` what they are called now."""
        for slot, kind in slots:
            cells = self.machine.memory.setdefault(slot, {})
            if Affine() in cells:
                was[slot] = cells[Affine()].value
            named[slot] = self.machine.unknown(f"{slot}@{why}", kind)
            cells[Affine()] = Cell(kind, named[slot])

    def _leave_stores(self, loop: Loop, before: Memory, slots: Sequence[tuple[str, str]]) -> None:
        """Mark what the iteration stored outside variables as stored by every iteration."""
        variables = {slot for slot, _ in slots}
        for name, cells in self.machine.memory.items():
            for offset, cell in list(cells.items()):
                if name not in variables and before.get(name, {}).get(offset) is not cell:
                    cells[offset] = replace(cell, loops=(*cell.loops, loop))

    def _check_ranges(self, loop: Loop) -> None:
        """An i64 variable is within its range before the loop and after an iteration."""
        low, high = self.machine.world.variable_range
        for slot, start in loop.start.items():
            for value in (loop.before.get(slot), self.machine.memory[slot][Affine()].value):
                if not isinstance(start, Affine) or not isinstance(value, Affine):
                    continue
                result = self.machine.implied(z3.And(low <= value.term(), value.term() <= high))
                if result.status is not Status.PROVED:
                    raise KernelTextError(f"{self.name}: variable {slot} may leave {low}..{high}: {result.detail}")

    def _slots_written(self, body: str, leave: str) -> list[tuple[str, str]]:
        """(object, type) of the stack variables stored to between two labels."""
        labels = list(self.function.blocks)
        lines = [line for at in labels[labels.index(body) : labels.index(leave)] for line in self.function.blocks[at]]
        roots = {line.operands[1].text for line in lines if line.op == "store"}
        made = [self._made_by[root] for root in sorted(roots) if root in self._made_by]
        return [(f"{self.name}{line.result}", line.type) for line in made if line.op == "alloca"]

    def value(self, operand: Operand) -> Value:
        """What an operand stands for."""
        kind, text = operand.type, operand.text
        if text.startswith("%"):
            return self.names[text]
        if text.startswith("splat"):
            found = _SPLAT.fullmatch(text)
            assert found, text
            return (_literal(element(kind), found[1]),) * lanes_of(kind)
        if text.startswith("<"):
            return tuple(_literal(*part.split()) for part in text.strip("<>").split(", "))
        return OPAQUE if text == "poison" else _literal(kind, text)

    def index(self, operand: Operand) -> Affine:
        """An i64 operand."""
        value = self.value(operand)
        assert isinstance(value, Affine), (self.name, operand)
        return value

    def pointer(self, operand: Operand) -> Pointer:
        """A ptr operand."""
        value = self.value(operand)
        assert isinstance(value, Pointer), (self.name, operand)
        return value

    def _execute(self, line: Line) -> Value:
        handler = _LINES.get(line.op)
        if handler is not None:
            return handler(self, line)
        values = [self.value(operand) for operand in line.operands]
        if element(line.type) == "i64":
            return self._in_63_bits(line, self._index_binary(line, values))
        if is_float(line.type):
            return lanewise(lambda a, b: float_binary(line.op, a, b), *values)
        if element(line.type) == "i1":
            return lanewise(_BOOLEANS[line.op], *values)
        width = bits(line.type)
        return lanewise(lambda a, b: lanes.binary(line.op, a, b, width), *values)

    def _index_binary(self, line: Line, values: Sequence[Value]) -> Value:
        left, right = values
        if isinstance(left, Opaque) or isinstance(right, Opaque):
            return OPAQUE
        assert isinstance(left, Affine) and isinstance(right, Affine), line
        match line.op:
            case "add":
                return left + right
            case "sub":
                return left - right
            case "mul":
                return self._product(left, right)
            case "udiv":
                return self._quotient(left, right)
            case "urem":
                return left - self._product(self._quotient(left, right), right)
            case _:
                raise KernelTextError(f"{line.op} of i64")

    def _in_63_bits(self, line: Line, value: Value) -> Value:
        if isinstance(value, Affine) and not -_LARGEST <= value.low <= value.high <= _LARGEST:
            raise NotProved(Result(Status.UNKNOWN, f"{value} may be {value.low}..{value.high}"), f"{self.name} {line.op}")
        return value

    def _product(self, left: Affine, right: Affine) -> Affine:
        """left * right; a new symbol where both are unknown, the same for the same factors."""
        if left.is_constant or right.is_constant:
            return right * left.constant if left.is_constant else left * right.constant
        known = self.machine.products
        for symbol, factors in known.items():
            if factors == (left, right):
                return of(symbol)
        ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
        symbol = self.machine.symbol("product", min(ends), max(ends))
        known[symbol] = (left, right)
        self.machine.define(of(symbol).term() == left.term() * right.term())
        return of(symbol)

    def _quotient(self, left: Affine, right: Affine) -> Affine:
        """left // right; a share of `units * part // parts` is at most all units (`share_lemma` in bounds.py)."""
        if right.is_constant and left.is_constant:
            return Affine(left.constant // right.constant)
        known = self.machine.quotients
        if (left, right) not in known:
            known[left, right] = self._new_quotient(left, right)
        return known[left, right]

    def _new_quotient(self, left: Affine, right: Affine) -> Affine:
        units = None if right.is_constant else self._units(left, right)
        high = max(0, left.high) // max(1, right.low) if units is None else units.high
        made = of(self.machine.symbol("quotient", 0, high))
        if units is not None:
            self.machine.define(made.term() <= units.term())
            return made
        self._must(right.low >= 1, right.term() >= 1, "a divisor that is not 0")
        self._must(left.low >= 0, left.term() >= 0, "a dividend that is not negative")
        whole = self._product(made, right)
        exact = z3.And(whole.term() <= left.term(), left.term() < whole.term() + right.term())
        self.machine.define(exact if right.low >= 1 else z3.Implies(right.term() >= 1, exact))
        return made

    def _must(self, is_plain: bool, claim: Term, what: str) -> None:
        """Raise NotProved unless a condition is plain from bounds, or implied by the facts."""
        result = Result(Status.PROVED) if is_plain else self.machine.implied(claim)
        if result.status is not Status.PROVED:
            raise NotProved(result, f"{self.name}: {what}")

    def _units(self, left: Affine, right: Affine) -> Affine | None:
        """u where left = u * part with 0 <= part <= right."""
        (symbol, factor), *more = left.terms
        pair = self.machine.products.get(symbol) if factor == 1 and not more and not left.constant else None
        whole, part = pair or (Affine(factor), Affine(left.constant // factor) + of(symbol))
        fits = pair is not None or (not more and left.constant % factor == 0)
        known = fits and self.machine.implied(z3.And(part.term() >= 0, part.term() <= right.term()))
        return whole if known and known.status is Status.PROVED else None

    def load(self, line: Line) -> Value:
        pointer = self.value(line.operands[0])
        return OPAQUE if isinstance(pointer, Opaque) else self.machine.load(self.pointer(line.operands[0]), line.type)

    def store(self, line: Line) -> Value:
        value, pointer = line.operands
        self.machine.store(self.pointer(pointer), value.type, self.value(value))
        return OPAQUE

    def move(self, line: Line) -> Value:
        return self.pointer(line.operands[0]).at(self.index(line.operands[1]))

    def allocate(self, line: Line) -> Value:
        name = f"{self.name}{line.result}"
        room = _ARRAY.fullmatch(line.type)
        self.machine.stack_bytes[name] = int(room[1]) if room else num_bytes(line.type)
        return Pointer(name, Affine())

    def compare(self, line: Line) -> Value:
        left, right = (self.value(operand) for operand in line.operands)
        return lanewise(lambda a, b: compare(line.op, line.detail[0], a, b, line.type), left, right)

    def cast(self, line: Line) -> Value:
        return cast(self.machine, line.op, self.value(line.operands[0]), line.operands[0].type, line.type)

    def insert(self, line: Line) -> Value:
        vector, scalar, _ = line.operands
        assert vector.text == "poison", line
        return (self.value(scalar),) * lanes_of(line.type)

    def shuffle(self, line: Line) -> Value:
        vectors = [self.value(operand) for operand in line.operands]
        lanes_ = [lane for vector in vectors for lane in (vector if isinstance(vector, tuple) else ())]
        opaque = any(isinstance(vector, Opaque) for vector in vectors)
        return OPAQUE if opaque else tuple(lanes_[int(lane)] for lane in line.detail)

    def extract(self, line: Line) -> Value:
        vector = self.value(line.operands[0])
        return vector[int(line.detail[0])] if isinstance(vector, tuple) else OPAQUE

    def negate(self, line: Line) -> Value:
        return lanewise(lambda x: float_binary("fneg", x), self.value(line.operands[0]))

    def select(self, line: Line) -> Value:
        condition, yes, no = (self.value(operand) for operand in line.operands)
        if isinstance(yes, Pointer) and isinstance(no, Pointer):
            return replace(yes, other=no)
        if isinstance(yes, Affine) and isinstance(no, Affine):
            return self._chosen(condition, yes, no)
        if isinstance(yes, tuple) and not isinstance(condition, tuple | Opaque):
            condition = (condition,) * len(yes)
        return lanewise(chosen, condition, yes, no)

    def _chosen(self, condition: Value, yes: Affine, no: Affine) -> Value:
        made = of(self.machine.symbol("chosen", min(yes.low, no.low), max(yes.high, no.high)))
        same = made.term() == yes.term(), made.term() == no.term()
        fact = z3.Or(*same) if isinstance(condition, Opaque) else z3.If(condition, *same)
        self.machine.define(fact)
        return made

    def call(self, line: Line) -> Value:
        (name,) = line.detail
        if name.startswith("llvm.prefetch"):
            return OPAQUE
        if name in ("interrupted", "barrier"):  # what an interrupted step leaves is thrown away
            return z3.BoolVal(False)
        arguments = [self.value(operand) for operand in line.operands]
        if name in self.machine.module:
            if self.machine.world.enter(self.machine, name, arguments):
                return OPAQUE
            return self.machine.run(name, *arguments) or OPAQUE
        if any(is_opaque(argument) for argument in arguments):
            return OPAQUE
        for pattern, model in INTRINSICS:
            if re.fullmatch(pattern, name):
                return model(*arguments)
        raise KernelTextError(f"no model of @{name}")


def _literal(kind: str, text: str) -> Scalar:
    if is_float(kind):
        return float_constant(text)
    if kind == "i1":
        return z3.BoolVal(text in ("1", "true"))
    assert _LITERAL.fullmatch(text), (kind, text)
    return Affine(int(text)) if kind == "i64" else lanes.constant(int(text), bits(kind))


def chosen(condition: Term, yes: Scalar, no: Scalar) -> Scalar:
    """`yes` where the condition holds."""
    if isinstance(yes, Opaque) or isinstance(no, Opaque):
        return OPAQUE
    if isinstance(yes, Lane):
        assert isinstance(no, Lane)
        return Lane(z3.If(condition, yes.term, no.term), min(yes.low, no.low), max(yes.high, no.high))
    return z3.If(condition, yes, no)


def _merged(condition: Term | Opaque, new: Memory, old: Memory, has_data: bool) -> Memory:
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
            count = len(cell.value) if isinstance(cell.value, tuple) else 0
            conditions = (condition,) * count if count else condition
            cells[offset] = replace(cell, value=lanewise(chosen, conditions, cell.value, was.value))
    return new


_BOOLEANS: dict[str, Callable[..., Term]] = {"and": z3.And, "or": z3.Or, "xor": z3.Xor}

_LINES: dict[str, Callable[[_Frame, Line], Value]] = {
    "load": _Frame.load,
    "store": _Frame.store,
    "getelementptr": _Frame.move,
    "alloca": _Frame.allocate,
    "icmp": _Frame.compare,
    "fcmp": _Frame.compare,
    "insertelement": _Frame.insert,
    "shufflevector": _Frame.shuffle,
    "extractelement": _Frame.extract,
    "fneg": _Frame.negate,
    "select": _Frame.select,
    "call": _Frame.call,
    **dict.fromkeys(
        ("sext", "zext", "trunc", "sitofp", "uitofp", "fptosi", "fpext", "fptrunc", "bitcast"), _Frame.cast
    ),
}
