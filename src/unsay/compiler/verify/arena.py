"""Memory of a lowered program: no instruction writes bytes that a later one still reads.

Worked out from the AVM program alone, as the machine will run it, and decided in linear integer arithmetic:

    for every instruction, every tensor it writes (rd, the hidden rows of an FFN, the step's own scratch) and every
    tensor that is live after it (read later, and not first written as a whole), there is no number of tokens 1..max,
    no number of logit rows 1..max and no byte that both hold in rows that are in use

A tensor that an instruction updates in place is the same tensor: same offset, type and dims. The bytes of a Q8A, Q8W,
Q16 or Q16P tensor are those of all its arrays (isa/formats.py), whose starts depend on the room, not the rows in use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.smt import Term, decide, z3
from unsay.errors import PassError
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_ACTIVATIONS, WHOLE_ACTIVATIONS, DType
from unsay.isa.opcodes import NO_REGISTER, Channel, Region
from unsay.isa.program import Instruction, Program


@dataclass(frozen=True, slots=True)
class Placed:
    """A tensor in the arena. rows: which count says how many of its rows are in use."""

    offset: int
    dtype: DType
    room: int
    columns: int
    rows: str

    @property
    def arrays(self) -> list[tuple[int, int]]:
        """(offset, bytes of a row) of each of its arrays."""
        widths = self._widths
        starts = [self.offset + self.room * sum(widths[:place]) for place in range(len(widths))]
        return list(zip(starts, widths, strict=True))

    @property
    def _widths(self) -> list[int]:
        if self.dtype in WHOLE_ACTIVATIONS:
            return [self.columns * 2, 4] if self.dtype is DType.Q16 else [self.columns, self.columns, 4]
        if self.dtype not in QUANTISED_ACTIVATIONS:
            return [self.columns * 4]
        side = self.columns // QUANT_BLOCK * 4
        return [self.columns, side, side] + [self.columns, side] * (self.dtype is DType.Q8W)

    def holds(self, byte: Term, counts: dict[str, Term]) -> Term:
        """Whether a byte of the arena belongs to rows in use."""
        inside = [z3.And(at <= byte, byte < at + counts[self.rows] * width) for at, width in self.arrays]
        return z3.Or(*inside)

    def __str__(self) -> str:
        return f"{self.dtype.name} [{self.rows} of {self.room}, {self.columns}] at {self.offset}"


@dataclass(frozen=True, slots=True)
class Effect:
    """What an instruction does to the arena."""

    index: int
    name: str
    reads: tuple[Placed, ...]
    writes: tuple[Placed, ...]


def prove_arena(program: Program, arena_bytes: int) -> Result:
    """The claim above, and that all tensors lie within the bytes the program says it needs."""
    effects = list(_effects(program))
    live: set[Placed] = set()
    pairs: dict[tuple[Placed, Placed], Effect] = {}
    for effect in reversed(effects):
        for written in effect.writes:
            pairs.update({(written, other): effect for other in live if other != written})
            pairs.update({(written, other): effect for other in effect.reads if other != written})
        live = (live - set(effect.writes)) | set(effect.reads)
    if live:
        return Result(Status.REFUTED, f"{', '.join(map(str, live))} is read before anything writes it")
    for (written, other), effect in pairs.items():
        result = _disjoint(written, other)
        if result.status is not Status.PROVED:
            where = f"instruction {effect.index} ({effect.name}) writes {written} over {other}"
            return Result(result.status, f"{where}: {result.detail}")
    ends = {tensor: _end(tensor) for effect in effects for tensor in effect.writes}
    for tensor, end in ends.items():
        if end > arena_bytes:
            return Result(Status.REFUTED, f"{tensor} ends at {end}, the arena at {arena_bytes}")
    return Result(Status.PROVED, f"{len(pairs)} pairs of tensors of {len(effects)} instructions")


def check_arena(program: Program, arena_bytes: int) -> None:
    """Raise PassError, naming `lower`, unless the claim above is proved."""
    result = prove_arena(program, arena_bytes)
    if result.status is not Status.PROVED:
        raise PassError(f"lower is {result.status.value}: {result.detail}")


def _disjoint(written: Placed, other: Placed) -> Result:
    byte, tokens, rows = z3.Ints("byte tokens rows")
    counts = {"tokens": tokens, "rows": rows}
    most = {tensor.rows: tensor.room for tensor in (written, other)}
    ranges = [z3.And(counts[name] >= 1, counts[name] <= room) for name, room in most.items()]
    return decide(z3.Not(z3.And(written.holds(byte, counts), other.holds(byte, counts))), *ranges)


def _end(tensor: Placed) -> int:
    return max(at + tensor.room * width for at, width in tensor.arrays)


def _effects(program: Program) -> Iterator[Effect]:
    """What each instruction reads and writes of GLOBAL memory."""
    named: dict[int, Placed | None] = {}
    for index, instruction in enumerate(program):
        name = instruction.row.name
        if name == "HALT":
            return
        if name == "TENSOR":
            named[instruction.registers[0]] = _placed(instruction)
            continue
        tensors = [None if r == NO_REGISTER else named[r] for r in instruction.registers]
        yield Effect(index, name, *_operands(instruction, tensors))


def _operands(instruction: Instruction, tensors: list[Placed | None]) -> tuple[tuple[Placed, ...], tuple[Placed, ...]]:
    name, target = instruction.row.name, tensors[0]
    reads = [tensor for tensor in tensors[1:] if tensor is not None]
    writes = [] if target is None else [target]
    if name == "STREAM" and instruction.integer("channel") == Channel.LOGITS:
        return tuple(reads), ()
    if name in ("FFN", "ROPE") or (name == "MATMUL" and instruction.has("ACCUMULATE")):
        reads += writes
    if name == "FFN":
        x, dtype = reads[0], DType(instruction.integer("hidden_dtype"))
        writes.append(Placed(instruction.integer("hidden"), dtype, x.room, instruction.integer("ffn_size"), x.rows))
    return tuple(reads), tuple(writes)


def _placed(instruction: Instruction) -> Placed | None:
    """The arena tensor a TENSOR instruction names, None for weights and logits."""
    if Region(instruction.flags & 3) is not Region.GLOBAL:
        return None
    rows = "tokens" if instruction.has("DIM_TOKENS") else "rows"
    dims = [instruction.integer(f"dim{axis}") for axis in range(2)]
    return Placed(instruction.integer("offset"), DType(instruction.integer("dtype")), dims[0], dims[1], rows)
