"""Where a program repeats itself: the layers of a model are written once, as a loop.

A stretch is instructions that come again right behind themselves, with the weights that differ so many bytes further on
and the pages of the next layer:

    ATTN MATMUL NORM FFN NORM QKV | ATTN MATMUL NORM FFN NORM QKV | ...        turns of six

A model's first layer is mostly not in it: what all layers share lies among its weights, since it is first used there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from unsay.errors import ProgramError, UnsupportedError
from unsay.isa.opcodes import NO_OFFSET, Channel, Region
from unsay.isa.program import Instruction, Program

Place = int | str
"""What may move: the weight in a register field (0 to 3), "bias" of a QKV, "layer" of an ATTN, and the "position"."""


class Named(NamedTuple):
    """What a register names, and whether it becomes the step's logits."""

    tensor: Instruction
    is_logits: bool


class Work(NamedTuple):
    """An instruction that is no TENSOR, and its position in the program. tensors: by register.

    same: what is equal in all turns, numbers: what moves.
    """

    instruction: Instruction
    position: int
    tensors: dict[int, Named]
    same: tuple[object, ...]
    numbers: dict[Place, int]


class Stretch(NamedTuple):
    """`times` turns of `works`, which are those of the first. moves: by how much the numbers of each grow in a turn.

    weight_stride: the bytes all weights move that do move.
    """

    works: Sequence[Work]
    times: int
    moves: Sequence[dict[Place, int]]
    weight_stride: int


def stretches(program: Program) -> Iterator[Stretch]:
    """The program up to its HALT, each stretch the one that covers most from where it begins."""
    works, at = list(_works(program)), 0
    while at < len(works):
        found = [once(works[at])]
        found += filter(None, (_turns(works, at, length) for length in range(1, (len(works) - at) // 2 + 1)))
        longest = max(found, key=lambda stretch: stretch.times * len(stretch.works))
        yield longest
        at += longest.times * len(longest.works)


def straight(program: Program) -> Iterator[Stretch]:
    """The same, without a loop."""
    return map(once, _works(program))


def once(work: Work) -> Stretch:
    """One instruction as a stretch."""
    return Stretch([work], 1, [dict.fromkeys(work.numbers, 0)], 0)


def _turns(works: Sequence[Work], at: int, length: int) -> Stretch | None:
    """The turns of so many instructions that begin there, None if there is one only."""
    moves = [_move(works[k], works[k + length]) for k in range(at, at + length)]
    known = [move for move in moves if move is not None]
    strides = {by for move in known for place, by in move.items() if place not in ("layer", "position") and by}
    alike = {move["position"] for move in known}, {move["layer"] for move in known if "layer" in move}
    if len(known) < length or len(strides) > 1 or len(alike[0]) > 1 or not alike[1] <= {1}:
        return None
    end = at + 2 * length
    while end < len(works) and _move(works[end - length], works[end]) == moves[(end - at) % length]:
        end += 1
    return Stretch(works[at : at + length], (end - at) // length, known, *(strides or {0}))


def _move(work: Work, later: Work) -> dict[Place, int] | None:
    if work.same != later.same:
        return None
    return {place: later.numbers[place] - number for place, number in work.numbers.items()}


def _works(program: Program) -> Iterator[Work]:
    named: dict[int, Named] = {}
    logits = _logits_tensors(program)
    for index, instruction in enumerate(program):
        if instruction.row.name == "HALT":
            return
        if instruction.row.name == "TENSOR":
            named[instruction.registers[0]] = _named(instruction, index, index in logits)
        else:
            yield _work(instruction, index, named)


def _named(tensor: Instruction, position: int, is_logits: bool) -> Named:
    where = f"instruction {position} (TENSOR)"
    if tensor.has("SPARSE"):
        raise UnsupportedError(f"{where}: sparse tensors are not supported by the native step")
    has_place = Region(tensor.flags & 3) in (Region.GLOBAL, Region.PERSISTENT)
    if not is_logits and (not has_place or tensor.integer("offset") == NO_OFFSET):
        raise ProgramError(f"{where}: a step's tensors have an offset in GLOBAL or PERSISTENT")
    return Named(tensor, is_logits)


def _work(instruction: Instruction, index: int, named: dict[int, Named]) -> Work:
    numbers: dict[Place, int] = {"position": index}
    same: list[object] = [instruction.row.name, instruction.flags]
    for (name, _), value in zip(instruction.row.fields, instruction.payload, strict=True):
        if isinstance(value, int) and (name == "layer" or (name == "bias" and value != NO_OFFSET)):
            numbers[name] = value
        else:
            same.append(value)
    tensors = {register: named[register] for register in instruction.registers if register in named}
    for place, register in enumerate(instruction.registers):
        if register not in tensors:
            same.append(register)
            continue
        same.append(_what(tensors[register]))
        if _is_weight(tensors[register].tensor):
            numbers[place] = tensors[register].tensor.integer("offset")
    return Work(instruction, index, tensors, tuple(same), numbers)


def _is_weight(tensor: Instruction) -> bool:
    return Region(tensor.flags & 3) is Region.PERSISTENT


def _what(named: Named) -> tuple[object, ...]:
    """All of a tensor but where a weight lies."""
    fields = zip(named.tensor.row.fields, named.tensor.payload, strict=True)
    kept = [value for (name, _), value in fields if name != "offset" or not _is_weight(named.tensor)]
    return (named.tensor.flags, named.is_logits, *kept)


def _logits_tensors(program: Program) -> frozenset[int]:
    """Indices of the TENSOR instructions whose tensor becomes the step's logits."""
    made: dict[int, int] = {}
    chosen: set[int] = set()
    for index, instruction in enumerate(program):
        if instruction.row.name == "TENSOR":
            made[instruction.registers[0]] = index
        if instruction.row.name == "STREAM" and instruction.integer("channel") == Channel.LOGITS:
            register = instruction.registers[1]
            if register not in made:
                raise ProgramError(f"instruction {index}: LOGITS of R{register}, which names no tensor")
            chosen.add(made[register])
    return frozenset(chosen)
