"""What a line of a kernel does: a table by instruction."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from unsay.compiler.verify.kernels import indexes, lanes
from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.instructions import INTRINSICS, cast, compare, float_operation
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.state import choice
from unsay.compiler.verify.kernels.text import CASTS, KernelTextError, Line
from unsay.compiler.verify.kernels.tiles import is_of_tiles
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
    lanewise,
    num_bytes,
)
from unsay.compiler.verify.smt import Term, z3

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.frame import Frame

_ARRAY = re.compile(r"\[(\d+) x i8\]")
_STOPPING = frozenset({"interrupted", "barrier"})
"""Functions that say whether the step is to stop: what a stopped step leaves is thrown away, so they say no here."""

_DEALING = frozenset({"deal"})
"""Functions that say which unit of work is a thread's next: any."""

NOT_FOLLOWED = _STOPPING | _DEALING
"""Functions that are not executed where they are called."""

_MOST_DEALT = 1 << 40
"""A number that no count of units reaches: which units a thread gets is not known."""


def execute(frame: Frame, line: Line) -> Value:
    """What the result of a line stands for; OPAQUE where it has none."""
    handler = _HANDLERS.get(line.op)
    return handler(frame, line) if handler is not None else _binary(frame, line)


def _binary(frame: Frame, line: Line) -> Value:
    left, right = (frame.value(operand) for operand in line.operands)
    if line.type == "i64":
        return indexes.binary(frame.machine, line.op, left, right)
    if element(line.type) == "i64":  # words of noise: no index is made of them
        return OPAQUE
    if is_float(line.type):
        return lanewise(partial(float_operation, line.op), left, right)
    if element(line.type) == "i1":
        return lanewise(_BOOLEANS[line.op], left, right)
    return lanewise(partial(_of_lanes, line.op, bits(line.type)), left, right)


def _of_lanes(op: str, width: int, left: Lane, right: Lane) -> Lane:
    return lanes.binary(op, left, right, width)


def _load(frame: Frame, line: Line) -> Value:
    opaque = isinstance(frame.value(line.operands[0]), Opaque)
    return OPAQUE if opaque else frame.machine.load(frame.pointer(line.operands[0]), line.type)


def _store(frame: Frame, line: Line) -> Value:
    value, pointer = line.operands
    frame.machine.store(frame.pointer(pointer), value.type, frame.value(value))
    return OPAQUE


def _move(frame: Frame, line: Line) -> Value:
    return frame.pointer(line.operands[0]).at(frame.index(line.operands[1]))


def _allocate(frame: Frame, line: Line) -> Value:
    name, room = f"{frame.name}{line.result}", _ARRAY.fullmatch(line.type)
    frame.machine.stack_bytes[name] = int(room[1]) if room else num_bytes(line.type)
    return Pointer(name, Affine())


def _compare(frame: Frame, line: Line) -> Value:
    left, right = (frame.value(operand) for operand in line.operands)
    return lanewise(partial(compare, line.op, line.detail[0]), left, right)


def _cast(frame: Frame, line: Line) -> Value:
    (source,) = line.operands
    return cast(frame.machine, line.op, frame.value(source), source.type, line.type)


def _insert(frame: Frame, line: Line) -> Value:
    vector, scalar, _ = line.operands
    assert vector.text == "poison", line
    value = frame.value(scalar)
    return OPAQUE if isinstance(value, Opaque | Vector) else Vector((value, *(OPAQUE,) * (lanes_of(line.type) - 1)))


def _shuffle(frame: Frame, line: Line) -> Value:
    vectors = [frame.value(operand) for operand in line.operands]
    given: list[Scalar] = []
    for vector in vectors:
        if not isinstance(vector, Vector):
            return OPAQUE
        given.extend(vector.lanes)
    return Vector(tuple(given[int(lane)] for lane in line.detail))


def _extract(frame: Frame, line: Line) -> Value:
    vector = frame.value(line.operands[0])
    return vector[int(line.detail[0])] if isinstance(vector, Vector) else OPAQUE


def _negate(frame: Frame, line: Line) -> Value:
    return lanewise(partial(float_operation, "fneg"), frame.value(line.operands[0]))


def _select(frame: Frame, line: Line) -> Value:
    condition, yes, no = (frame.value(operand) for operand in line.operands)
    if isinstance(yes, Pointer) and isinstance(no, Pointer):
        return replace(yes, other=no)
    if isinstance(yes, Affine) and isinstance(no, Affine):
        return indexes.choice(frame.machine, condition, yes, no)
    return choice(condition, yes, no)


def _call(frame: Frame, line: Line) -> Value:
    machine, (name,) = frame.machine, line.detail
    if name.startswith("llvm.prefetch"):
        return OPAQUE
    if name in _STOPPING:
        machine.tiles.check_released(name)
        return z3.BoolVal(False)
    arguments = [frame.value(operand) for operand in line.operands]
    if name in _DEALING:
        machine.world.enter(machine, name, arguments)
        return of(machine.symbol(name, 0, _MOST_DEALT))
    if name in machine.module:
        return OPAQUE if machine.world.enter(machine, name, arguments) else machine.run(name, *arguments) or OPAQUE
    if is_of_tiles(name):
        machine.tiles.execute(machine, name, arguments)
        return OPAQUE
    if any(is_opaque(argument) for argument in arguments):
        return OPAQUE
    for pattern, model in INTRINSICS:
        if re.fullmatch(pattern, name):
            return model(*arguments)
    raise KernelTextError(f"no model of @{name}")


_BOOLEANS: dict[str, Callable[..., Term]] = {"and": z3.And, "or": z3.Or, "xor": z3.Xor}

_HANDLERS: dict[str, Callable[[Frame, Line], Value]] = {
    "load": _load,
    "store": _store,
    "getelementptr": _move,
    "alloca": _allocate,
    "icmp": _compare,
    "fcmp": _compare,
    "insertelement": _insert,
    "shufflevector": _shuffle,
    "extractelement": _extract,
    "fneg": _negate,
    "select": _select,
    "call": _call,
    **dict.fromkeys(CASTS, _cast),
}
