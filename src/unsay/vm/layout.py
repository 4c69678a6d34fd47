"""Where the tensors of a hand-written program lie, if its TENSOR instructions leave that to the machine."""

from __future__ import annotations

from dataclasses import replace

from unsay.errors import MachineError
from unsay.isa.address import PROGRAM_OFFSET
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_ACTIVATIONS, DType, activation_bytes
from unsay.isa.opcodes import NO_OFFSET, Region
from unsay.isa.program import Instruction, Program

_ALIGNMENT_BYTES = 64


def place(program: Program) -> Program:
    """The program with every TENSOR offset `none` in GLOBAL made definite, each instruction its own bytes.

    They follow the highest offset the program names itself. Placed once, so a loop reuses them.
    """
    end = max((_end(op) for op in program if _is_scratch(op) and op.integer("offset") < PROGRAM_OFFSET), default=0)
    placed: list[Instruction] = []
    for op in program:
        if _is_scratch(op) and op.integer("offset") == NO_OFFSET:
            op = _at(op, end)
            end = _end(op)
        placed.append(op)
    return Program(tuple(placed), program.data)


def _is_scratch(op: Instruction) -> bool:
    return op.row.name == "TENSOR" and op.flags & 3 == Region.GLOBAL


def _at(op: Instruction, offset: int) -> Instruction:
    names = [name for name, _ in op.row.fields]
    payload = list(op.payload)
    payload[names.index("offset")] = offset
    return replace(op, payload=tuple(payload))


def _end(op: Instruction) -> int:
    """Offset after the tensor, aligned."""
    elements = 1
    for axis in range(min(op.integer("rank"), 4)):
        elements *= op.integer(f"dim{axis}")
    dtype = op.integer("dtype")
    if dtype in QUANTISED_ACTIVATIONS:
        num_bytes = activation_bytes(DType(dtype), 1, elements // QUANT_BLOCK * QUANT_BLOCK)
    elif dtype in (DType.F32, DType.I32):
        num_bytes = 4 * elements
    else:
        raise MachineError(f"TENSOR in GLOBAL of type 0x{dtype:02X}: activations are F32, Q8A or Q8W")
    return -(-(op.integer("offset") % NO_OFFSET + num_bytes) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
