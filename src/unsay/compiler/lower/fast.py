"""The program of the fast class (docs/numerics.md N14 to N16): the exact one, with other operands of its products.

    TENSOR that a MATMUL, QKV or FFN over tokens reads as x     any type, at its offset  ->  Q16 or Q16P, at its own
    FFN                                                         hidden of any type       ->  likewise

What writes such a tensor (NORM, ATTN, QUANT, SILU_MUL) quantises whole rows then, and the product takes its weights as
int8. Everything else is the same instruction: the residual stream, attention, and all that counts logit rows.
The offsets lie behind the exact program's arena, and `check_arena` is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from unsay.compiler.lower.lower import Lowered
from unsay.compiler.lower.plan import aligned
from unsay.errors import UnsupportedError
from unsay.isa.formats import DType, activation_bytes
from unsay.isa.opcodes import NO_REGISTER
from unsay.isa.program import Instruction, Program, Value

_PRODUCTS = ("MATMUL", "QKV", "FFN")
_MAKERS = ("NORM", "ATTN", "QUANT", "SILU_MUL")
_X = 1
"""The register field of a product's operand."""


def fast_program(exact: Lowered, x_dtype: DType) -> Lowered:
    """The fast class's program over the same weights. x_dtype: Q16, or Q16P where products are made on tiles.

    Raises UnsupportedError where it has none.
    """
    operands = {named[op.registers[_X]] for op, named in _walk(exact.program) if _is_over_tokens(op, named)}
    _check(exact.program, operands)
    room = _Room(x_dtype, exact.arena_bytes)
    program = Program(tuple(_changed(op, operands, room) for op in exact.program), exact.program.data)
    return Lowered(program, exact.plan, room.end)


def _walk(program: Program) -> Iterator[tuple[Instruction, dict[int, Instruction]]]:
    """Every instruction but TENSOR, and the TENSOR that each register comes from."""
    named: dict[int, Instruction] = {}
    for op in program:
        if op.row.name == "TENSOR":
            named[op.registers[0]] = replace(op, registers=_NOWHERE)
        else:
            yield op, named


_NOWHERE = (NO_REGISTER,) * 4
"""Two TENSOR instructions that differ in the register alone name the same tensor."""


def _is_over_tokens(op: Instruction, named: dict[int, Instruction]) -> bool:
    return op.row.name in _PRODUCTS and named[op.registers[_X]].has("DIM_TOKENS")


def _check(program: Program, operands: set[Instruction]) -> None:
    """An operand is written by what can quantise, and read by products alone."""
    for op, named in _walk(program):
        for place, register in enumerate(op.registers):
            if register == NO_REGISTER or named[register] not in operands:
                continue
            if (place, op.row.name) not in _ALLOWED:
                raise UnsupportedError(f"{op.row.name} with an operand of a product: the fast class has no such step")


_ALLOWED = {(0, name) for name in _MAKERS} | {(_X, name) for name in _PRODUCTS}


@dataclass(slots=True)
class _Room:
    """Offsets given to tensors of this type so far; `end` is behind them."""

    dtype: DType
    end: int
    given: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def offset(self, rows: int, columns: int, *what: int) -> int:
        """Of a tensor, the same for the same `what`."""
        key = (rows, columns, *what)
        if key not in self.given:
            self.given[key] = self.end
            self.end += aligned(activation_bytes(self.dtype, rows, columns))
        return self.given[key]


def _changed(op: Instruction, operands: set[Instruction], room: _Room) -> Instruction:
    if op.row.name == "TENSOR" and replace(op, registers=_NOWHERE) in operands:
        place = room.offset(op.integer("dim0"), op.integer("dim1"), op.integer("dtype"), op.integer("offset"))
        return _with(op, dtype=int(room.dtype), offset=place)
    if op.row.name == "FFN":
        size, rows = op.integer("ffn_size"), next(iter(operands)).integer("dim0")
        return _with(op, hidden=room.offset(rows, size, op.integer("hidden")), hidden_dtype=int(room.dtype))
    return op


def _with(op: Instruction, **fields: Value) -> Instruction:
    """The instruction with other fields."""
    names = [name for name, _ in op.row.fields]
    return replace(op, payload=tuple(fields.get(name, value) for name, value in zip(names, op.payload, strict=True)))
