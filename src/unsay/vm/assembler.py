"""Text to program and back, without loss. Everything about an opcode is read from the table in isa/opcodes.py.

    ; a comment
    .model "smollm2:135m"                the model that STEP runs; not part of the bytes
    again:                               a label: the number of the next instruction
        SENSE   R1, peripheral=USER_INPUT
        BRANCH.IF_ZERO R1, label=again   flags after the name, registers in the order rd ra rb rc, then named fields
        STREAM  -, R2, channel=EMIT      `-` where an optional register is not used
        LOAD    R3, low=@fix, high=0     @name is the address of a data label
    .data
    fix: .record 20 1542 338             a payload: target position, then token ids
         .f32 0.5 1e-5
         .align 64

Numbers are written as in Python. Fields that hold an enumeration take its names (EMBED, VAD, Q4_1), an offset that
names nothing is `none`. Data directives: .bytes (hex), .u8, .i32, .i64, .f16, .f32, .record, .zero N, .align N.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from ctypes import c_float
from dataclasses import dataclass, field
from enum import IntEnum

from unsay.errors import ProgramError
from unsay.isa.address import PROGRAM_OFFSET
from unsay.isa.formats import DType
from unsay.isa.opcodes import BY_NAME, INSTRUCTION_BYTES, NO_OFFSET, NO_REGISTER, Channel, Opcode, Peripheral
from unsay.isa.program import Instruction, Program, Value, make
from unsay.vm.records import pack_record

ENUM_FIELDS: dict[str, type[IntEnum]] = {
    "channel": Channel,
    "peripheral": Peripheral,
    "dtype": DType,
    "hidden_dtype": DType,
}
_HEX_FIELDS = frozenset({"offset", "bias", "hidden", "low", "high"})
_TOKEN = re.compile(r'(?P<space>\s+|;.*)|"(?P<string>[^"]*)"|(?P<word>[^\s,=:;"]+|[,=:])')
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Assembly:
    """What a text says: the program, and the model it names (None: none)."""

    program: Program
    model: str | None = None


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    line: int
    column: int

    def error(self, message: str) -> ProgramError:
        """The complaint, with its place."""
        return ProgramError(f"{self.line}:{self.column}: {message}")


@dataclass(slots=True)
class _Source:
    """The first pass: statements not encoded yet, data, and where the labels are."""

    statements: list[list[_Token]] = field(default_factory=list[list[_Token]])
    data: bytearray = field(default_factory=bytearray)
    code_labels: dict[str, int] = field(default_factory=dict[str, int])
    data_labels: dict[str, int] = field(default_factory=dict[str, int])
    in_data: bool = False
    model: str | None = None

    def read(self, tokens: list[_Token]) -> None:
        """One line: labels, then a statement or directive."""
        while len(tokens) > 1 and tokens[1].text == ":":
            self._label(tokens[0])
            tokens = tokens[2:]
        if not tokens:
            return
        if tokens[0].text.startswith("."):
            self._directive(tokens[0], tokens[1:])
        elif self.in_data:
            raise tokens[0].error(f"{tokens[0].text!r} in the data section; go back with .code")
        else:
            self.statements.append(tokens)

    def _label(self, token: _Token) -> None:
        if not _NAME.fullmatch(token.text):
            raise token.error(f"{token.text!r} is not a label: letters, digits and _ only")
        if token.text in self.code_labels or token.text in self.data_labels:
            raise token.error(f"label {token.text} is defined twice")
        if self.in_data:
            self.data_labels[token.text] = len(self.data)
        else:
            self.code_labels[token.text] = len(self.statements)

    def _directive(self, name: _Token, arguments: list[_Token]) -> None:
        if name.text in (".code", ".data") and not arguments:
            self.in_data = name.text == ".data"
        elif name.text == ".model" and len(arguments) == 1:
            self.model = arguments[0].text
        elif self.in_data and name.text in _DATA:
            self.data += _data_bytes(name, arguments, len(self.data))
        else:
            known = ", ".join([".code", ".data", ".model NAME", *_DATA])
            raise name.error(f"{name.text} is not a directive here; there are {known}; data goes after .data")


def assemble(text: str) -> Assembly:
    """Read assembly; raises ProgramError that begins with `line:column:`."""
    source = _Source()
    for number, line in enumerate(text.splitlines(), start=1):
        source.read(_tokens(line, number))
    instructions = tuple(_instruction(statement, source) for statement in source.statements)
    return Assembly(Program(instructions, bytes(source.data)), source.model)


def _tokens(line: str, number: int) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    while position < len(line):
        match = _TOKEN.match(line, position)
        if match is None:
            raise _Token("", number, position + 1).error("a string without its closing quote")
        if match["space"] is None:
            tokens.append(_Token(match["word"] or match["string"] or "", number, position + 1))
        position = match.end()
    return tokens


def _instruction(tokens: list[_Token], source: _Source) -> Instruction:
    head = tokens[0]
    name, *flags = head.text.split(".")
    row = BY_NAME.get(name)
    if row is None:
        raise head.error(f"no opcode {name!r}; there are {', '.join(BY_NAME)}")
    registers: list[int] = []
    fields: dict[str, Value] = {}
    for operand in _operands(tokens[1:]):
        if len(operand) == 1 and not fields:
            registers.append(_register(operand[0]))
        elif len(operand) == 3 and operand[1].text == "=":
            fields[operand[0].text] = _value(row, operand[0], operand[2], source)
        else:
            raise operand[0].error("expected a register or `-`, or name=value after the registers")
    try:
        return make(name, *_in_places(row, registers), flags=flags, **fields)
    except ProgramError as error:
        raise head.error(str(error)) from error


def _operands(tokens: list[_Token]) -> list[list[_Token]]:
    """Split at commas."""
    operands: list[list[_Token]] = [[]] if tokens else []
    for token in tokens:
        if token.text != ",":
            operands[-1].append(token)
        elif operands[-1]:
            operands.append([])
        else:
            raise token.error("nothing before the comma")
    if operands and not operands[-1]:
        raise tokens[-1].error("nothing after the comma")
    return operands


def _register(token: _Token) -> int:
    if token.text == "-":
        return NO_REGISTER
    if not re.fullmatch(r"R\d{1,2}", token.text):
        raise token.error(f"{token.text!r} is not a register (R0..R15, or - for none)")
    return int(token.text[1:])


def _in_places(row: Opcode, registers: list[int]) -> list[int]:
    """Registers as written, put where the opcode has them; those left out at the end are unused."""
    places = [place for place, role in enumerate(row.registers) if role]
    if len(registers) > len(places):
        raise ProgramError(f"{row.name} has {len(places)} registers, got {len(registers)}")
    fields = [NO_REGISTER] * 4
    for place, register in zip(places, registers, strict=False):
        fields[place] = register
    return fields


def _value(row: Opcode, name: _Token, token: _Token, source: _Source) -> Value:
    codes = dict(row.fields)
    if name.text not in codes:
        raise name.error(f"{row.name} has no field {name.text}; it has {', '.join(codes) or 'none'}")
    text = token.text
    enum = ENUM_FIELDS.get(name.text)
    if enum and text in enum.__members__:
        return enum[text]
    if name.text == "label" and text in source.code_labels:
        return source.code_labels[text]
    if text.startswith("@") and text[1:] in source.data_labels:
        return PROGRAM_OFFSET + INSTRUCTION_BYTES * len(source.statements) + source.data_labels[text[1:]]
    if text == "none":
        return NO_OFFSET
    return _number(token, float if codes[name.text] == "f" else _integer)


def _integer(text: str) -> int:
    return int(text, 0)


def _number(token: _Token, read: Callable[[str], Value]) -> Value:
    try:
        return _nan(token.text) if token.text.startswith("nan_") else read(token.text)
    except (ValueError, struct.error):
        raise token.error(f"{token.text!r} is not a number, a name or a label known here") from None


_DATA: dict[str, str] = {
    ".bytes": "",
    ".u8": "B",
    ".i32": "i",
    ".i64": "q",
    ".f16": "e",
    ".f32": "f",
    ".record": "",
    ".zero": "",
    ".align": "",
}
"""Data directives, and the struct code of those that are lists of numbers."""


def _data_bytes(name: _Token, arguments: list[_Token], position: int) -> bytes:
    if not arguments:
        raise name.error(f"{name.text} of nothing")
    if name.text == ".bytes":
        return _hex(name, arguments)
    code = _DATA[name.text]
    numbers = [_number(token, float if code in ("e", "f") else _integer) for token in arguments]
    try:
        return struct.pack(f"<{len(numbers)}{code}", *numbers) if code else _special(name, numbers, position)
    except (struct.error, OverflowError, ValueError) as error:
        raise name.error(f"{name.text}: a number does not fit: {error}") from error


def _special(name: _Token, numbers: list[Value], position: int) -> bytes:
    """.record TARGET IDS..., .zero N, .align N."""
    first, *rest = (int(number) for number in numbers)
    if name.text == ".record":
        return pack_record(first, rest)
    if rest or not 0 < first <= 2**24:
        raise name.error(f"{name.text} takes one number, 1..{2**24}")
    return bytes(first if name.text == ".zero" else -position % first)


def _hex(name: _Token, arguments: list[_Token]) -> bytes:
    try:
        return bytes.fromhex("".join(token.text for token in arguments))
    except ValueError:
        raise name.error(".bytes takes pairs of hex digits") from None


def disassemble(program: Program, model: str | None = None) -> str:
    """Text that `assemble` turns into the same program."""
    targets = {op.integer("label") for op in program if any(name == "label" for name, _ in op.row.fields)}
    labels = {index: f"L{index}" for index in sorted(targets) if index <= len(program)}
    lines = [f'.model "{model}"'] if model else []
    for index, op in enumerate(program):
        if index in labels:
            lines.append(f"{labels[index]}:")
        lines.append(_format(op, labels))
    if len(program) in labels:
        lines.append(f"{labels[len(program)]}:")
    if program.data:
        lines.append(".data")
        lines += [f"    .bytes {program.data[at : at + 32].hex()}" for at in range(0, len(program.data), 32)]
    return "\n".join(lines) + "\n"


def _format(op: Instruction, labels: dict[int, str]) -> str:
    name = ".".join([op.row.name, *(flag for flag in op.row.flags if op.has(flag))])
    pairs = zip(op.row.registers, op.registers, strict=True)
    operands = ["-" if register == NO_REGISTER else f"R{register}" for role, register in pairs if role]
    values = zip(op.row.fields, op.payload, strict=True)
    operands += [f"{field_name}={_format_value(field_name, value, labels)}" for (field_name, _), value in values]
    return f"    {name:<14} {', '.join(operands)}".rstrip()


def _format_value(name: str, value: Value, labels: dict[int, str]) -> str:
    if isinstance(value, float):
        return format_f32(value)
    enum = ENUM_FIELDS.get(name)
    if enum and value in tuple(enum):
        return enum(value).name
    if name == "label" and value in labels:
        return labels[value]
    if name in _HEX_FIELDS:
        return "none" if value == NO_OFFSET else hex(value)
    return str(value)


def format_f32(value: float) -> str:
    """The shortest decimal that reads back as the same f32; a NaN with its bits."""
    if value != value:
        return f"nan_{struct.pack('<f', value).hex()}"
    texts = (f"{value:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if c_float(float(text)).value == c_float(value).value)


def _nan(text: str) -> float:
    (value,) = struct.unpack("<f", bytes.fromhex(text.removeprefix("nan_")))
    return value
