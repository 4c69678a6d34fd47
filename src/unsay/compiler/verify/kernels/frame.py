"""The flow of control of one call: blocks one after the other, branches merged, loops for one unknown iteration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.lines import execute
from unsay.compiler.verify.kernels.state import Cell, Fact, Loop, Memory, copied, merged
from unsay.compiler.verify.kernels.text import FunctionText, KernelTextError, Line, Operand
from unsay.compiler.verify.kernels.values import (
    OPAQUE,
    Opaque,
    Pointer,
    Scalar,
    Value,
    Vector,
    bits,
    element,
    float_constant,
    is_float,
    lanes_of,
)
from unsay.compiler.verify.obligation import Status
from unsay.compiler.verify.smt import z3

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.machine import Machine

_SPLAT = re.compile(r"splat \(\S+ (\S+)\)")


class Frame:
    """One call of one function. names: what its SSA names stand for."""

    def __init__(self, machine: Machine, function: FunctionText, name: str, names: dict[str, Value]) -> None:
        self.machine = machine
        self.function = function
        self.name = name
        self.names = names
        self.result: Value | None = None
        self._returned = False
        lines = [line for block in function.blocks.values() for line in block]
        self._made_by = {line.result: line for line in lines if line.result}

    def run(self) -> Value | None:
        """Execute it; what it returns."""
        self._run_from("entry", None)
        assert self._returned, self.name
        return self.result

    def value(self, operand: Operand) -> Value:
        """What an operand stands for."""
        kind, text = operand.type, operand.text
        if text.startswith("%"):
            return self.names[text]
        if text.startswith("splat"):
            found = _SPLAT.fullmatch(text)
            assert found, text
            return Vector((_literal(element(kind), found[1]),) * lanes_of(kind))
        if text.startswith("<"):
            pairs = [part.split() for part in text.strip("<>").split(", ")]
            return Vector(tuple(_literal(kind, number) for kind, number in pairs))
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

    def _run_from(self, label: str, stop: str | None, came_from: str = "") -> None:
        """Execute from a label until `stop`, or the end of the function."""
        while label != stop and not self._returned:
            if label.endswith(".head"):
                label, came_from = self._loop(label, came_from), label
            else:
                label, came_from = self._block(label), label

    def _block(self, label: str) -> str:
        """Execute a block; the label that follows."""
        for line in self.function.blocks[label]:
            if line.op == "comment":
                self.machine.comment = line.detail[0]
            elif line.op == "ret":
                self._returned = True
                self.result = self.value(line.operands[0]) if line.operands else None
                return ""
            elif line.op == "br":
                return self._branch(line)
            else:
                value = execute(self, line)
                if line.result:
                    self.names[line.result] = value
        raise KernelTextError(f"{self.name}: block {label} does not end")

    def _branch(self, line: Line) -> str:
        """The label after a branch; of two ways, the first is executed up to the second."""
        if not line.operands:
            return line.detail[0]
        condition = self.value(line.operands[0])
        then, end = line.detail
        if isinstance(condition, Opaque):
            self._either(condition, then, end)
            return end
        known = z3.simplify(condition)
        if z3.is_true(known) or z3.is_false(known):
            return then if z3.is_true(known) else end
        with self.machine.knowing(known):
            returned = self._either(known, then, end)
        if returned:  # what follows is reached only otherwise
            self.machine.facts.append(Fact.of(z3.Not(known)))
        return end

    def _either(self, condition: Value, then: str, end: str) -> bool:
        """Execute from `then` to `end` and merge with not having done so; whether it left the function instead."""
        machine, before = self.machine, copied(self.machine.memory)
        self._run_from(then, end)
        returned, self._returned = self._returned, False
        machine.memory = before if returned else merged(condition, machine.memory, before, machine.world.has_data)
        return returned

    def _loop(self, head: str, came_from: str) -> str:
        """Execute one unknown iteration; the label after the loop."""
        phi, test, branch = self.function.blocks[head]
        body, leave = branch.detail
        begin = next(o for o, label in zip(phi.operands, phi.detail, strict=True) if label == came_from)
        latch = next(label for label in phi.detail if label != came_from)
        following = self.function.blocks[latch][0]
        counts = (following.op, following.operands[0].text, test.op, *test.detail, test.operands[0].text)
        if counts != ("add", phi.result, "icmp", "slt", phi.result) or phi.result is None:
            raise KernelTextError(f"{self.name}: {head} does not count up to a limit: {' '.join(map(str, counts))}")
        step = following.operands[1]
        loop = self._iteration(head, self.index(begin), self.index(test.operands[1]), self.index(step))
        self.names[phi.result] = loop.index
        slots = self._slots_written(body, leave)
        self._forget(slots, loop.start, loop.before, f"{head}.start")
        others = copied(self.machine.memory)
        if loop.symbol.low <= loop.symbol.high:
            with self.machine.inside(loop):
                self._run_from(body, latch)
                self._check_ranges(loop)
        self._check_carried(loop, [slot for slot, _ in slots])
        self._forget(slots, loop.end_values, loop.after, f"{head}.end")
        self._leave_stores(loop, others, slots)
        self.machine.loops.append(loop)
        return leave

    def _iteration(self, head: str, begin: Affine, end: Affine, step: Affine) -> Loop:
        """An unknown iteration: begin + step * k where the loop begins at a constant, else a symbol of its own."""
        machine, name, last = self.machine, head.removesuffix(".head"), end.high - 1
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
            if whole.status is Status.PROVED:
                symbol = machine.at_most(symbol, max(symbol.low, end.high - step.constant))
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

    def _check_carried(self, loop: Loop, slots: Sequence[str]) -> None:
        """No iteration reads what an earlier one stored, other than variables: the iteration executed is any.

        Stack memory of a function that the iteration calls is new in every call.
        """
        if not self.machine.world.has_data:
            return
        earlier = {loop.symbol: of(self.machine.symbol("earlier", loop.symbol.low, loop.symbol.high))}
        gap = earlier[loop.symbol].term() < of(loop.symbol).term()
        for load, store in loop.pairs():
            name = store.pointer.object
            if name in slots or (name in self.machine.stack_bytes and not name.startswith(self.name)):
                continue
            distance = (store.pointer.offset.with_(earlier) - load.pointer.offset).term()
            apart = z3.Or(distance >= load.size, distance <= -store.size)
            if self.machine.implied(z3.Implies(gap, apart)).status is not Status.PROVED:
                raise KernelTextError(f"{self.name}: {load.pointer} may be of an earlier iteration of {loop.name}")

    def _slots_written(self, body: str, leave: str) -> list[tuple[str, str]]:
        """(object, type) of the stack variables stored to between two labels."""
        labels = list(self.function.blocks)
        lines = [line for at in labels[labels.index(body) : labels.index(leave)] for line in self.function.blocks[at]]
        roots = {line.operands[1].text for line in lines if line.op == "store"}
        made = [self._made_by[root] for root in sorted(roots) if root in self._made_by]
        return [(f"{self.name}{line.result}", line.type) for line in made if line.op == "alloca"]


def _literal(kind: str, text: str) -> Scalar:
    if is_float(kind):
        return float_constant(text)
    if kind == "i1":
        return z3.BoolVal(text in ("1", "true"))
    return Affine(int(text)) if kind == "i64" else lanes.constant(int(text), bits(kind))
