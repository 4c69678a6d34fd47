"""Instructions as values and as bytes; a program as a list of them.

A program file is a 32-byte header, the instructions, then a data section:

    magic "AVMP" | version u16 | reserved u16 | num_instructions u64 | data_bytes u64 | reserved u64
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unsay.errors import ProgramError
from unsay.isa.opcodes import BY_CODE, BY_NAME, INSTRUCTION_BYTES, NO_REGISTER, NUM_REGISTERS, Opcode

_HEAD = struct.Struct("<6B")
_FILE = struct.Struct("<4sHHQQQ")
_MAGIC = b"AVMP"
_VERSION = 1
_PAYLOAD_BYTES = INSTRUCTION_BYTES - _HEAD.size

Value = int | float


def _payload_struct(row: Opcode) -> struct.Struct:
    layout = struct.Struct("<" + "".join(code for _, code in row.fields))
    assert layout.size <= _PAYLOAD_BYTES, (row.name, layout.size)
    return layout


_PAYLOADS = {code: _payload_struct(row) for code, row in BY_CODE.items()}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `payload` holds the fields of its opcode, in the table's order."""

    row: Opcode
    flags: int
    registers: tuple[int, int, int, int]
    payload: tuple[Value, ...]

    def field(self, name: str) -> Value:
        """The payload field of this name."""
        for (field_name, _), value in zip(self.row.fields, self.payload, strict=True):
            if field_name == name:
                return value
        raise KeyError(f"{self.row.name} has no field {name}")

    def integer(self, name: str) -> int:
        """An integer payload field."""
        value = self.field(name)
        assert isinstance(value, int), (self.row.name, name, value)
        return value

    def has(self, flag: str) -> bool:
        """Whether the named flag bit is set."""
        return bool(self.flags >> self.row.flags.index(flag) & 1)

    def encode(self) -> bytes:
        """The 32 bytes."""
        payload = _PAYLOADS[self.row.code].pack(*self.payload)
        return _HEAD.pack(self.row.code, self.flags, *self.registers) + payload.ljust(_PAYLOAD_BYTES, b"\0")


def make(
    name: str,
    rd: int = NO_REGISTER,
    ra: int = NO_REGISTER,
    rb: int = NO_REGISTER,
    rc: int = NO_REGISTER,
    *,
    flags: Iterable[str] = (),
    **fields: Value,
) -> Instruction:
    """Build an instruction from names; raises ProgramError if a field, flag or register does not fit the table."""
    row = BY_NAME[name]
    missing = [field for field, _ in row.fields if field not in fields]
    extra = sorted(set(fields) - {field for field, _ in row.fields})
    if missing or extra:
        raise ProgramError(f"{name}: missing fields {missing}, unknown fields {extra}")
    unknown = sorted(set(flags) - set(row.flags))
    if unknown:
        raise ProgramError(f"{name}: unknown flags {unknown}, it has {list(row.flags)}")
    bits = sum(1 << row.flags.index(flag) for flag in set(flags))
    instruction = Instruction(row, bits, (rd, ra, rb, rc), tuple(fields[field] for field, _ in row.fields))
    _check_registers(instruction, name)
    try:
        instruction.encode()
    except (struct.error, OverflowError) as error:
        raise ProgramError(f"{name}: a field does not fit its width: {fields}") from error
    return instruction


def decode(data: bytes, where: str = "instruction") -> Instruction:
    """The instruction in 32 bytes; raises ProgramError for an unknown opcode, flag, register or dirty padding."""
    if len(data) != INSTRUCTION_BYTES:
        raise ProgramError(f"{where}: {len(data)} bytes, an instruction is {INSTRUCTION_BYTES}")
    code, flags, *registers = _HEAD.unpack_from(data)
    row = BY_CODE.get(code)
    if row is None:
        raise ProgramError(f"{where}: opcode 0x{code:02X} is not defined")
    if flags >> len(row.flags):
        raise ProgramError(f"{where}: {row.name} has {len(row.flags)} flag bits, got 0x{flags:02X}")
    layout = _PAYLOADS[code]
    if any(data[_HEAD.size + layout.size :]):
        raise ProgramError(f"{where}: {row.name} has {layout.size} payload bytes, the rest must be zero")
    rd, ra, rb, rc = registers
    instruction = Instruction(row, flags, (rd, ra, rb, rc), layout.unpack_from(data, _HEAD.size))
    _check_registers(instruction, where)
    return instruction


def _check_registers(instruction: Instruction, where: str) -> None:
    for field, role, register in zip(
        ("rd", "ra", "rb", "rc"), instruction.row.registers, instruction.registers, strict=True
    ):
        used = register != NO_REGISTER
        if used and register >= NUM_REGISTERS:
            raise ProgramError(f"{where}: {instruction.row.name} {field}=R{register}, registers are R0..R15")
        if used and not role:
            raise ProgramError(f"{where}: {instruction.row.name} does not use {field}")
        if not used and role and not role.endswith("?"):
            raise ProgramError(f"{where}: {instruction.row.name} needs {field} ({role})")


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions and the constant data they point at (GLOBAL, after the code)."""

    instructions: tuple[Instruction, ...]
    data: bytes = b""

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.instructions)

    def __len__(self) -> int:
        return len(self.instructions)

    def to_bytes(self) -> bytes:
        """The program file."""
        header = _FILE.pack(_MAGIC, _VERSION, 0, len(self), len(self.data), 0)
        return header + b"".join(instruction.encode() for instruction in self) + self.data

    @classmethod
    def from_bytes(cls, blob: bytes) -> Program:
        """Read a program file; raises ProgramError naming what is wrong and where."""
        if len(blob) < _FILE.size:
            raise ProgramError(f"program file of {len(blob)} bytes, the header alone is {_FILE.size}")
        magic, version, reserved16, count, data_bytes, reserved64 = _FILE.unpack_from(blob)
        if magic != _MAGIC or version != _VERSION:
            raise ProgramError(f"not an AVM program of version {_VERSION}: magic {magic!r}, version {version}")
        if reserved16 or reserved64:
            raise ProgramError(f"reserved header fields must be zero, got {reserved16} and {reserved64}")
        code_end = _FILE.size + count * INSTRUCTION_BYTES
        if code_end + data_bytes != len(blob):
            raise ProgramError(f"header says {code_end + data_bytes} bytes, the file has {len(blob)}")
        starts = range(_FILE.size, code_end, INSTRUCTION_BYTES)
        instructions = tuple(
            decode(blob[start : start + INSTRUCTION_BYTES], f"instruction {index}")
            for index, start in enumerate(starts)
        )
        return cls(instructions, bytes(blob[code_end:]))
