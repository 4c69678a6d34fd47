"""The program of the fast class (docs/numerics.md N14 to N16): the exact one, with other operands of its products.

    TENSOR that a MATMUL, QKV or FFN over tokens reads as x     any type, at its offset  ->  Q16 or Q16P, at its own
    FFN                                                         hidden of any type       ->  likewise
    QUANT that makes one such tensor of another                 gone: the other is Q16 already, and stands for both

What writes such a tensor (NORM, ATTN, QUANT, SILU_MUL) quantises whole rows then, and the product takes its weights as
int8. Everything else is the same instruction: the residual stream, attention, and all that counts logit rows.
The offsets lie behind the exact program's arena, and `check_arena` is asked again.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
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
    homes = _homes(exact.program)
    _check_users(exact.program, homes)
    _check_order(exact.program, homes)
    room = _Room(x_dtype, exact.arena_bytes)
    code = tuple(_changed(op, homes, room) for op, named in _walk(exact.program) if not _is_between(op, named, homes))
    return Lowered(Program(code, exact.program.data), exact.plan, room.end)


def _walk(program: Program) -> Iterator[tuple[Instruction, dict[int, Instruction]]]:
    """Every instruction, and the TENSOR that each register comes from."""
    named: dict[int, Instruction] = {}
    for op in program:
        if op.row.name == "TENSOR":
            named[op.registers[0]] = _nowhere(op)
        yield op, named


def _nowhere(tensor: Instruction) -> Instruction:
    """Two TENSOR instructions that differ in the register alone name the same tensor."""
    return replace(tensor, registers=(NO_REGISTER,) * 4)


def _homes(program: Program) -> dict[Instruction, Instruction]:
    """What stands for each operand of a product over tokens: the operand that a QUANT makes it of, or itself."""
    operands = {named[op.registers[_X]] for op, named in _walk(program) if _is_over_tokens(op, named)}
    homes = {operand: operand for operand in operands}
    for op, named in _walk(program):
        if _is_between(op, named, operands):
            homes[named[op.registers[0]]] = named[op.registers[_X]]
    return homes


def _is_over_tokens(op: Instruction, named: dict[int, Instruction]) -> bool:
    return op.row.name in _PRODUCTS and named[op.registers[_X]].has("DIM_TOKENS")


def _is_between(op: Instruction, named: dict[int, Instruction], operands: Container[Instruction]) -> bool:
    """Whether it makes one operand of another: that is for weights that are floats, this for quantised ones."""
    return op.row.name == "QUANT" and all(named[register] in operands for register in op.registers[:2])


def _check_users(program: Program, homes: dict[Instruction, Instruction]) -> None:
    """An operand is written by what can quantise, and read by products alone."""
    for op, named in _walk(program):
        if op.row.name == "TENSOR" or _is_between(op, named, homes):
            continue
        for place, register in enumerate(op.registers):
            if named.get(register) in homes and (place, op.row.name) not in _ALLOWED:
                raise _refused(op, named[register])


_ALLOWED = {(0, name) for name in _MAKERS} | {(_X, name) for name in _PRODUCTS}


def _check_order(program: Program, homes: dict[Instruction, Instruction]) -> None:
    """What stands for an operand is not written again before a product has read it.

    made, held: the number of the instruction that an operand comes from, and of what last wrote the one in its place.
    """
    made: dict[Instruction, int] = {}
    held: dict[Instruction, int] = {}
    for number, (op, named) in enumerate(_walk(program)):
        out, x = (named.get(register) for register in op.registers[:2])
        if op.row.name in _PRODUCTS and x in homes and made[x] != held[homes[x]]:
            raise _refused(op, x)
        if x in homes and out in homes and _is_between(op, named, homes):
            made[out] = made[x]
        elif op.row.name in _MAKERS and out in homes:
            made[out] = held[homes[out]] = number


def _refused(op: Instruction, tensor: Instruction) -> UnsupportedError:
    kind, columns, offset = DType(tensor.integer("dtype")).name, tensor.integer("dim1"), tensor.integer("offset")
    return UnsupportedError(
        f"prefill 'fast' is not there for this model: {op.row.name} uses {kind} [tokens, {columns}] at {offset} as it "
        "is, and products with other weights would have it as int16. Load it with prefill 'exact', or give the weights "
        "that read one input (Q, K and V of a layer; gate and up) all quantised formats, or all floats"
    )


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


def _changed(op: Instruction, homes: dict[Instruction, Instruction], room: _Room) -> Instruction:
    home = homes.get(_nowhere(op)) if op.row.name == "TENSOR" else None
    if home is not None:
        place = room.offset(*(home.integer(name) for name in ("dim0", "dim1", "dtype", "offset")))
        return _with(op, dtype=int(room.dtype), offset=place)
    if op.row.name == "FFN":
        size, rows = op.integer("ffn_size"), next(iter(homes)).integer("dim0")
        return _with(op, hidden=room.offset(rows, size, op.integer("hidden")), hidden_dtype=int(room.dtype))
    return op


def _with(op: Instruction, **fields: Value) -> Instruction:
    """The instruction with other fields."""
    names = [name for name, _ in op.row.fields]
    return replace(op, payload=tuple(fields.get(name, value) for name, value in zip(names, op.payload, strict=True)))
