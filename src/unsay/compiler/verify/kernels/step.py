"""The body of a step: which instruction calls which kernel, and what memory it gives it.

The text says where each pointer comes from, the comment above a call which instruction it is of, and the program what
that instruction names. A call is refused that is given anything else, and so is a body in which an instruction has no
call, or is reached before those in front of it were. Of an image with a program for the fast class the step chooses one
of two bodies; both are walked through, each beside its own program.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.lower.plan import aligned
from unsay.compiler.verify.kernels.affine import Affine, Symbol, of
from unsay.compiler.verify.kernels.machine import Machine
from unsay.compiler.verify.kernels.text import FunctionText, KernelTextError
from unsay.compiler.verify.kernels.values import OPAQUE, Pointer, Scalar, Value
from unsay.compiler.verify.obligation import NotProvedError, Result, Status
from unsay.isa.abi import StepArgs
from unsay.isa.formats import QUANTISED_ACTIVATIONS, DType, activation_bytes, padded_rows, weight_bytes
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, Region
from unsay.isa.program import Instruction, Program
from unsay.isa.scan import RowDraw, seen_bytes

FIELDS = {getattr(StepArgs, name).offset: name for name, *_ in StepArgs._fields_}
"""Names of the arguments of a step by their offsets."""


@dataclass(frozen=True, slots=True)
class Room:
    """Memory a kernel is given. page_bytes: not 0 for the KV pool, whose pages lie so far apart."""

    num_bytes: int
    page_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """What a kernel is called with. of_tokens: its count is that of tokens, else of logit rows, which may be none."""

    kernel: str
    of_tokens: bool
    rooms: tuple[Room, ...]


def calls_of(step: Step, module: Mapping[str, FunctionText]) -> list[Call]:
    """The different calls of a step, those of both programs if it has two; raises NotProvedError."""
    world = _StepWorld(step)
    machine = Machine(module, world)
    machine.run("step", Pointer("args", Affine()), of(machine.symbol("thread", 0, step.max_threads - 1)))
    world.check_all_called()
    return list(world.calls)


class _StepWorld:
    """What memory each call is given, and how large it is."""

    variable_range = (0, 0)
    has_data = False

    def __init__(self, step: Step) -> None:
        self.step = step
        self.calls: dict[Call, None] = {}
        two = {"exact_step": _Body(step.program), "fast_step": _Body(step.fast)} if step.fast is not None else {}
        self._bodies = two or {"step": _Body(step.program)}
        self._body = next(iter(self._bodies.values()))

    def check_all_called(self) -> None:
        """Every instruction of every program has a call."""
        for body in self._bodies.values():
            body.check_before(len(body.program))

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        name = FIELDS[pointer.offset.constant]
        if kind == "ptr":
            return Pointer(name, Affine())
        if name == "is_fast":
            return OPAQUE
        rows = (0, self.step.max_rows)
        ranges = {"num_tokens": (1, self.step.max_tokens), "num_rows": rows, "num_seen": rows}
        return of(Symbol(name, *ranges.get(name, (1, self.step.max_threads))))

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        pass

    def enter(self, machine: Machine, name: str, arguments: Sequence[Value]) -> bool:
        """Note the call with the sizes of what it is given, in a loop of layers (codegen/turns.py) turn by turn."""
        if name in self._bodies:
            self._body = self._bodies[name]
            return False
        count = arguments[3]
        assert isinstance(count, Affine), arguments
        of_tokens = count.terms[0][0].name == "num_tokens"
        given = [pointer for pointer in arguments[4:] if isinstance(pointer, Pointer)]
        turns = list(_turns(machine))
        self._body.reach([index for index, _ in turns])
        for index, turn in turns:
            sizes = tuple(self._size(index, pointer.object, pointer.offset.with_(turn)) for pointer in given)
            self.calls[Call(name, of_tokens, sizes)] = None
        return True

    def _size(self, index: int, name: str, offset: Affine) -> Room:
        rooms = dict(self._rooms(index))
        if not offset.is_constant or (name, offset.constant) not in rooms:
            where = f"instruction {index}: {name}+{offset}, which it does not name"
            raise NotProvedError(Result(Status.REFUTED), where)
        return rooms[name, offset.constant]

    def _rooms(self, index: int) -> Iterator[tuple[tuple[str, int], Room]]:
        """(object, offset) of all memory an instruction may touch, and its size."""
        step, spec, instruction = self.step, self.step.spec, self._body.program.instructions[index]
        own = step_scratch(spec, step.max_tokens)
        yield ("arena", step.scratch_offset), Room(own.states_bytes)
        yield ("arena", step.scratch_offset + own.states_bytes), Room(own.rows_bytes)
        tensors = [self._body.named[index][r] for r in instruction.registers if r != NO_REGISTER]
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


class _Body:
    """The text of one program. `reached`: instructions that have a call."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.named = _tensors(program)
        self._reached: set[int] = set()

    def reach(self, turns: Sequence[int]) -> None:
        """A call of an instruction, or of one in each turn of a loop."""
        self.check_before(turns[0])
        self._reached.update(turns)

    def check_before(self, index: int) -> None:
        """Raise NotProvedError unless every instruction in front of this one has a call."""
        for place, instruction in enumerate(self.program.instructions[:index]):
            if instruction.row.name not in ("TENSOR", "HALT") and place not in self._reached:
                where = f"instruction {place} ({instruction.row.name}): no call in front of instruction {index}"
                raise NotProvedError(Result(Status.REFUTED), where)


def _turns(machine: Machine) -> Iterator[tuple[int, dict[Symbol, Affine]]]:
    """The index of the instruction that is executed, and what the loop's counter is, in each turn of the loop around.

    What is written above the instruction says: "index:", in a loop "index of the first turn + stride * turn:".
    """
    first, _, stride = machine.comment.split(":")[0].removesuffix(" * turn").partition(" + ")
    loop = machine.around
    if loop is None:
        yield int(first), {}
        return
    if loop.begin != Affine() or not loop.end.is_constant or loop.index != of(loop.symbol):
        raise KernelTextError(f"turns {loop.index} of {loop.begin}..{loop.end}: they count from 0 up to a number")
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
