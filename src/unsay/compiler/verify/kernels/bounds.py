"""Addresses: every kernel of a compiled step stays inside the tensors its instruction names, and no index overflows.

The text of the whole step is taken as it is compiled. It says which memory each kernel is given, the program how large
the tensors there are. Each kernel is executed symbolically once for each set of sizes, for any number of tokens, any
thread and number of threads, data left out:

    access      0 <= offset and offset + size <= bytes of the tensor     for every load and store; LIA, where the bounds
                                                                         of the symbols do not show it already
    overflow    every index lies within 63 bits                          by the bounds of its symbols
    masked      attention is computed only for parts that have a key     LIA, where a part calls `softmax_part`
    tiles       configured as they are used, released at the end         tiles.py

Taken for granted is what the caller of a step guarantees (isa/abi.py): ids, positions, pages, rows and sequences are in
range, and a page table has an entry for every page up to a position. The tables of pages themselves are not sized here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.lower.plan import aligned
from unsay.compiler.verify.kernels.affine import Affine, Symbol, of
from unsay.compiler.verify.kernels.machine import Machine
from unsay.compiler.verify.kernels.text import FunctionText, functions
from unsay.compiler.verify.kernels.values import OPAQUE, Pointer, Scalar, Value
from unsay.compiler.verify.obligation import NotProvedError, Result, Status
from unsay.compiler.verify.smt import decide, z3
from unsay.isa.abi import StepArgs
from unsay.isa.formats import QUANTISED_ACTIVATIONS, DType, activation_bytes, padded_rows, weight_bytes
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Region
from unsay.isa.program import Instruction, Program
from unsay.isa.scan import RowDraw, seen_bytes

_NUM_PAGES = 1 << 24
_FIELDS = {getattr(StepArgs, name).offset: name for name, *_ in StepArgs._fields_}


@dataclass(frozen=True, slots=True)
class Room:
    """Memory a kernel is given. page_bytes: not 0 for the KV pool, whose pages lie so far apart."""

    num_bytes: int
    page_bytes: int = 0


def prove_step(step: Step, unit: DotUnit, text: str | None = None, only: str = "") -> Result:
    """The claims above for every kernel of a step of one program. text: another text of it (a mutant); only: what the
    names of kernels to look at begin with."""
    assert step.fast is None, "a step of two programs is proved program by program"
    module = functions(text or step_text(step, unit))
    body = _StepWorld(step, frozenset(module))
    machine = Machine(module, body)
    machine.run("step", Pointer("args", Affine()), of(machine.symbol("thread", 0, step.max_threads - 1)))
    worlds = [_check_kernel(module, step, *call) for call in body.calls if call[0].startswith(only)]
    total = sum(world.num_accesses for world in worlds)
    return Result(Status.PROVED, f"{len(worlds)} kernels, {total} accesses, {sum(w.num_solved for w in worlds)} by LIA")


def share_lemma() -> Result:
    """units * part // parts <= units where 0 <= part <= parts: a thread's share ends within the units."""
    units, part, parts, share = z3.Ints("units part parts share")
    known = z3.And(units >= 0, part >= 0, part <= parts, parts >= 1, share * parts <= units * part)
    return decide(share <= units, known)


class _StepWorld:
    """The body of a step: what memory each call is given, and how large it is."""

    variable_range = (0, 0)
    has_data = False

    def __init__(self, step: Step, kernels: frozenset[str]) -> None:
        self.step = step
        self.kernels = kernels
        self.calls: dict[tuple[str, bool, tuple[Room, ...]], None] = {}
        self._named = _tensors(step.program)

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        name = _FIELDS[pointer.offset.constant]
        if kind == "ptr":
            return Pointer(name, Affine())
        rows = self.step.max_rows
        high = {"num_tokens": self.step.max_tokens, "num_rows": rows, "num_seen": rows}
        return of(Symbol(name, 1, high.get(name, self.step.max_threads)))

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        pass

    def enter(self, machine: Machine, name: str, arguments: Sequence[Value]) -> bool:
        """Note the call with the sizes of what it is given, in a loop of layers (codegen/turns.py) turn by turn."""
        count = arguments[3]
        assert isinstance(count, Affine), arguments
        of_tokens = count.terms[0][0].name == "num_tokens"
        given = [pointer for pointer in arguments[4:] if isinstance(pointer, Pointer)]
        for instruction, turn in _turns(machine):
            rooms = dict(self._rooms(instruction))
            sizes: list[Room] = []
            for pointer in given:
                offset = pointer.offset.with_(turn)
                where = f"instruction {instruction}: {pointer.object}+{offset}, which it does not name"
                if not offset.is_constant or (pointer.object, offset.constant) not in rooms:
                    raise NotProvedError(Result(Status.REFUTED), where)
                sizes.append(rooms[pointer.object, offset.constant])
            self.calls[name, of_tokens, tuple(sizes)] = None
        return True

    def _rooms(self, index: int) -> Iterator[tuple[tuple[str, int], Room]]:
        """(object, offset) of all memory an instruction may touch, and its size."""
        step, spec, instruction = self.step, self.step.spec, self.step.program.instructions[index]
        own = step_scratch(spec, step.max_tokens, step.max_threads)
        yield ("arena", step.scratch_offset), Room(own.states_bytes)
        yield ("arena", step.scratch_offset + own.states_bytes), Room(own.rows_bytes)
        tensors = [self._named[index][r] for r in instruction.registers if r != NO_REGISTER]
        yield from (_room(tensor) for tensor in tensors)
        if instruction.row.name == "STREAM":
            yield ("draws", 0), Room(step.max_rows * ctypes.sizeof(RowDraw))
            yield ("seen", 0), Room(step.max_rows * seen_bytes(spec.vocab_size))
        if instruction.row.name == "FFN":
            dtype, size = DType(instruction.integer("hidden_dtype")), instruction.integer("ffn_size")
            capacity = tensors[0].integer("dim0")
            yield ("arena", instruction.integer("hidden")), Room(activation_bytes(dtype, capacity, size))
        if instruction.row.name == "QKV" and instruction.integer("bias") != NO_OFFSET:
            yield ("persistent", instruction.integer("bias")), Room(tensors[0].integer("dim1") * 4)
        if instruction.row.name == "ATTN":
            layout = spec.kv_layout
            layer = Room(layout.num_kv_heads * layout.head_bytes, layout.page_bytes)
            yield ("kv_pool", layout.key_offset(instruction.integer("layer"), 0)), layer


def _turns(machine: Machine) -> Iterator[tuple[int, dict[Symbol, Affine]]]:
    """The index of the instruction that is executed, and what the loop's counter is, in each turn of the loop around.

    What is written above the instruction says: "index:", in a loop "index of the first turn + stride * turn:".
    """
    first, _, stride = machine.comment.split(":")[0].removesuffix(" * turn").partition(" + ")
    loop = machine.around
    if loop is None:
        yield int(first), {}
        return
    assert loop.begin == Affine() and loop.end.is_constant and loop.index == of(loop.symbol), loop
    for turn in range(loop.end.constant):
        yield int(first) + int(stride) * turn, {loop.symbol: Affine(turn)}


def _tensors(program: Program) -> list[dict[int, Instruction]]:
    """For each instruction, the TENSOR instruction that each register was last named by."""
    named: dict[int, Instruction] = {}
    found: list[dict[int, Instruction]] = []
    for instruction in program:
        if instruction.row.name == "TENSOR":
            named = {**named, instruction.registers[0]: instruction}
        found.append(named)
    return found


def _room(tensor: Instruction) -> tuple[tuple[str, int], Room]:
    region, dtype = Region(tensor.flags & 3), DType(tensor.integer("dtype"))
    dims = [tensor.integer(f"dim{axis}") for axis in range(tensor.integer("rank"))]
    offset = tensor.integer("offset")
    if region is Region.TEMPORAL:
        return ("logits", 0), Room(dims[0] * padded_rows(dims[1]) * 4)
    if region is Region.GLOBAL:
        return ("arena", offset), Room(activation_bytes(dtype, dims[0], dims[1]))
    if len(dims) == 2 and dtype not in QUANTISED_ACTIVATIONS:
        return ("persistent", offset), Room(weight_bytes(dtype, dims[0], dims[1]))
    count = 1
    for extent in dims:
        count *= extent
    return ("persistent", offset), Room(aligned(count * 4))


def _check_kernel(
    module: Mapping[str, FunctionText],
    step: Step,
    name: str,
    of_tokens: bool,
    rooms: tuple[Room, ...],
) -> _KernelWorld:
    """Execute one kernel with memory of these sizes; raises NotProvedError."""
    parameters = [parameter.text for parameter in module[name].parameters]
    sizes = dict(zip(parameters[4:], rooms, strict=True))
    world = _KernelWorld(name, step, sizes)
    machine = Machine(module, world)
    count = machine.symbol("count", 1, step.max_tokens if of_tokens else step.max_rows)
    threads = machine.symbol("threads", 1, step.max_threads)
    thread = machine.symbol("thread", 0, step.max_threads - 1)
    machine.define(of(thread).term() < of(threads).term())
    world.count = of(count)
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
            return Pointer(_FIELDS[pointer.offset.constant], Affine())
        name = _FIELDS[pointer.offset.constant] if pointer.object == "args" else pointer.object
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
        free = limit - offset - size
        if offset.low >= 0 and free.low >= 0:
            return
        self.num_solved += 1
        result = machine.implied(z3.And(offset.term() >= 0, free.term() >= 0))
        if result.status is not Status.PROVED:
            raise NotProvedError(result, f"{self.name}: {size} bytes at {pointer.object}[{offset}] of {limit}")

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
        """Attention is computed only where there is a key."""
        if name == "softmax_part":
            keys = arguments[1]
            assert isinstance(keys, Affine), arguments
            result = machine.implied(keys.term() >= 1)
            if result.status is not Status.PROVED:
                raise NotProvedError(result, f"{self.name}: a part without a key")
        return False
