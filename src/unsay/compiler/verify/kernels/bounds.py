"""Addresses: every kernel of a compiled step stays inside the tensors its instruction names, and no index overflows.

The text of the whole step is taken as it is compiled. It says which memory each kernel is given, the program how large
the tensors there are. Each kernel is executed symbolically once for each set of sizes, for any number of tokens, any
thread and number of threads, data left out:

    access      0 <= offset and offset + size <= bytes of the tensor     for every load and store; LIA, where the bounds
                                                                         of the symbols do not show it already
    overflow    every index lies within 63 bits                          by the bounds of its symbols
    masked      attention is computed only for parts that have a key     LIA, where a part calls `softmax_part`
    owners      units are taken from shares of threads that there are    LIA, where a kernel calls `deal`
    tiles       configured as they are used, released at the end         tiles.py

Taken for granted is what the caller of a step guarantees (isa/abi.py): ids, positions, pages, rows and sequences are in
range, and a page table has an entry for every page up to a position. The tables of pages themselves are not sized here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.verify.kernels.affine import Affine, Symbol, of
from unsay.compiler.verify.kernels.machine import Machine
from unsay.compiler.verify.kernels.step import FIELDS, Call, Room, calls_of
from unsay.compiler.verify.kernels.text import FunctionText, functions
from unsay.compiler.verify.kernels.values import OPAQUE, Pointer, Scalar, Value
from unsay.compiler.verify.obligation import NotProvedError, Result, Status
from unsay.compiler.verify.smt import Term, decide, z3
from unsay.isa.abi import StepArgs

_NUM_PAGES = 1 << 24


def prove_step(step: Step, unit: DotUnit, text: str | None = None, only: str = "") -> Result:
    """The claims above for every kernel of a step, of both its programs if it has two. text: another text of it (a
    mutant); only: what the names of kernels to look at begin with."""
    module = functions(text or step_text(step, unit))
    worlds = [_check_kernel(module, step, call) for call in calls_of(step, module) if call.kernel.startswith(only)]
    total = sum(world.num_accesses for world in worlds)
    return Result(Status.PROVED, f"{len(worlds)} kernels, {total} accesses, {sum(w.num_solved for w in worlds)} by LIA")


def share_lemma() -> Result:
    """units * part // parts <= units where 0 <= part <= parts: a thread's share ends within the units."""
    units, part, parts, share = z3.Ints("units part parts share")
    known = z3.And(units >= 0, part >= 0, part <= parts, parts >= 1, share * parts <= units * part)
    return decide(share <= units, known)


def _check_kernel(module: Mapping[str, FunctionText], step: Step, call: Call) -> _KernelWorld:
    """Execute one kernel with memory of these sizes; raises NotProvedError."""
    name = call.kernel
    parameters = [parameter.text for parameter in module[name].parameters]
    world = _KernelWorld(name, step, dict(zip(parameters[4:], call.rooms, strict=True)))
    machine = Machine(module, world)
    counts = (1, step.max_tokens) if call.of_tokens else (0, step.max_rows)
    count = machine.symbol("count", *counts)
    threads = machine.symbol("threads", 1, step.max_threads)
    thread = machine.symbol("thread", 0, step.max_threads - 1)
    machine.define(of(thread).term() < of(threads).term())
    world.count, world.threads = of(count), of(threads)
    pointers = [Pointer(parameter, Affine()) for parameter in parameters[4:]]
    machine.run(name, Pointer("args", Affine()), of(thread), of(threads), of(count), *pointers)
    machine.tiles.check_released(name)
    return world


@dataclass(slots=True)
class _KernelWorld:
    """A kernel and its memory: data is opaque, index arrays hold numbers in range."""

    name: str
    step: Step
    sizes: dict[str, Room]
    count: Affine = field(default_factory=Affine)
    threads: Affine = field(default_factory=Affine)
    has_data: bool = False
    num_accesses: int = 0
    num_solved: int = 0
    _indexes: dict[tuple[str, Affine], Symbol] = field(default_factory=dict[tuple[str, Affine], Symbol])

    @property
    def variable_range(self) -> tuple[int, int]:
        """Of a position in a context."""
        return 0, self.step.spec.context_length - 1

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        if pointer.object == "args" and kind == "ptr":
            return Pointer(FIELDS[pointer.offset.constant], Affine())
        name = FIELDS[pointer.offset.constant] if pointer.object == "args" else pointer.object
        high = {
            "token_ids": self.step.spec.vocab_size - 1, "positions": self.step.spec.context_length - 1,
            "sequence": self.step.max_tokens - 1, "page_tables": _NUM_PAGES - 1,
            "logit_rows": self.step.max_tokens - 1, "page_stride": _NUM_PAGES,
        }  # fmt: skip
        if kind != "i32" or name not in high:
            return OPAQUE
        key = (name, pointer.offset)
        if key not in self._indexes:
            self._indexes[key] = machine.symbol(name, 0, high[name])
        return of(self._indexes[key])

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        """Inside, or raise NotProvedError."""
        self.num_accesses += 1
        for one in (pointer, pointer.other):
            if one is not None:
                self._inside(machine, one, size)

    def _inside(self, machine: Machine, pointer: Pointer, size: int) -> None:
        offset, limit = pointer.offset, self._limit(machine, pointer.object)
        if limit is None:
            return
        room = self.sizes.get(pointer.object)
        if room is not None and room.page_bytes:
            offset = self._in_page(machine, offset, room)
        self.num_solved += check_inside(machine, Pointer(pointer.object, offset), size, limit, self.name)

    def _limit(self, machine: Machine, name: str) -> Affine | None:
        """Bytes of an object; None where it is not sized."""
        if name in self.sizes:
            return Affine(self.sizes[name].num_bytes)
        if name in ("token_ids", "positions", "sequence", "logit_rows"):
            return self.count * 4
        if name == "args":
            return Affine(StepArgs.num_seen.offset + 4)
        if name == "page_tables":
            return None
        return Affine(machine.stack_bytes[name])

    def _in_page(self, machine: Machine, offset: Affine, room: Room) -> Affine:
        """The offset from the start of its page in this layer."""
        pages = [
            symbol
            for symbol, factor in offset.terms
            if factor == room.page_bytes and symbol.name.startswith("page_tables")
        ]
        if len(pages) != 1:
            raise NotProvedError(Result(Status.REFUTED), f"{self.name}: pool[{offset}] is in no page")
        return offset - of(pages[0]) * room.page_bytes

    def enter(self, machine: Machine, name: str, arguments: Sequence[Value]) -> bool:
        """Attention is computed only where there is a key, and units are those of a thread there is."""
        if name in ("softmax_part", "deal"):
            assert isinstance(arguments[1], Affine), arguments
            number = arguments[1].term()
            if name == "deal":
                self._must(machine, z3.And(number >= 0, number < self.threads.term()), "units of no thread")
            else:
                self._must(machine, number >= 1, "a part without a key")
        return False

    def _must(self, machine: Machine, claim: Term, otherwise: str) -> None:
        result = machine.implied(claim)
        if result.status is not Status.PROVED:
            raise NotProvedError(result, f"{self.name}: {otherwise}")


def check_inside(machine: Machine, pointer: Pointer, size: int, limit: Affine, where: str) -> bool:
    """Raise NotProvedError unless so many bytes lie within `limit`; whether the solver had to be asked."""
    offset, free = pointer.offset, limit - pointer.offset - size
    if offset.low >= 0 and free.low >= 0:
        return False
    result = machine.implied(z3.And(offset.term() >= 0, free.term() >= 0))
    if result.status is not Status.PROVED:
        raise NotProvedError(result, f"{where}: {size} bytes at {pointer.object}[{offset}] of {limit}")
    return True
