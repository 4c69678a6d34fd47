"""Assembler: bytes to text to bytes without loss, errors with their place, encodings that never change."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.images import plain_image
from unsay.errors import ProgramError
from unsay.isa.address import PROGRAM_OFFSET
from unsay.isa.formats import DType
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, OPCODES, Channel
from unsay.isa.program import Instruction, Program
from unsay.vm.assembler import assemble, disassemble, format_f32
from unsay.vm.records import pack_record

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.avms"))

_RANGES = {"B": 2**8, "H": 2**16, "I": 2**32, "Q": 2**64}
_F32 = st.integers(0, 2**32 - 1).map(lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0])


def _field(code):
    return _F32 if code == "f" else st.integers(0, _RANGES[code] - 1) | st.integers(0, 6)


@st.composite
def instructions(draw):
    row = draw(st.sampled_from(OPCODES))
    registers = []
    for role in row.registers:
        choices = [st.just(NO_REGISTER)] if not role else [st.integers(0, 15)]
        registers.append(draw(st.one_of(*choices, *([st.just(NO_REGISTER)] if role.endswith("?") else []))))
    payload = tuple(draw(_field(code)) for _, code in row.fields)
    return Instruction(row, draw(st.integers(0, 2 ** len(row.flags) - 1)), tuple(registers), payload)


@given(st.lists(instructions(), max_size=8), st.binary(max_size=80))
def test_what_is_disassembled_assembles_to_the_same_bytes(code, data):
    blob = Program(tuple(code), data).to_bytes()
    assert assemble(disassemble(Program.from_bytes(blob))).program.to_bytes() == blob


def test_a_compiled_model_survives_the_round_trip(tiny_path):
    program = plain_image(tiny_path).program
    text = disassemble(program, "tiny")
    again = assemble(text)
    assert again.program.to_bytes() == program.to_bytes() and again.model == "tiny"
    assert "dtype=Q4_1" in text and "NORM.ROWS" in text and "channel=EMBED" in text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_assemble_and_survive_the_round_trip(path):
    program = assemble(path.read_text()).program
    assert assemble(disassemble(program)).program.to_bytes() == program.to_bytes()


GOLDEN = {
    "HALT": "0000ffffffff",
    "TENSOR.REGION1.DIM_TOKENS R1, dtype=Q4_1, rank=2, dim0=3, dim1=64, dim2=1, dim3=1, offset=0x40": (
        "010601ffffff 11 02 03000000 40000000 01000000 01000000 4000000000000000"
    ),
    "ATTN R1, R2, R3, R4, layer=1, num_heads=9, num_kv_heads=3, head_dim=64, scale=0.125, q_column=0, k_column=576, "
    "v_column=768": "020001020304 0100 0900 0300 4000 0000003e 00000000 40020000 00030000",
    "STREAM -, R9, channel=EMIT": "0300ff09ffff 03",
    "FORK R4, label=258": "040004ffffff 0201000000000000",
    "ABORT R0, R1": "0500ff0001ff",
    "SENSE R1, peripheral=GUARD": "060001ffffff 03",
    "NORM.LAYER.ROWS R1, R2, R3, R4, eps=1e-05": "070301020304 acc52737",
    "FFN R1, R2, R3, R4, ffn_size=1536, hidden=0x1000, hidden_dtype=Q8A": ("080001020304 00060000 0010000000000000 20"),
    "JUMP label=5": "1000ffffffff 0500000000000000",
    "BRANCH.IF_ZERO R2, label=1": "1101ff02ffff 0100000000000000",
    "STEP R2": "120002ffffff",
    "LOAD R3, low=0x1, high=0x2": "130003ffffff 0100000000000000 0200000000000000",
    "CHECKPOINT": "1400ffffffff",
    "COMPARE.LESS.EQUAL R1, R2, R3": "1503010203ff",
    "MATMUL.ACCUMULATE R1, R2, R3": "1601010203ff",
    "ROPE R1, R1, R2, num_heads=9, head_dim=64, column=576": "1700010102ff 0900 4000 40020000",
    "QKV R1, R2, R3, R4, num_heads=9, num_kv_heads=3, head_dim=64, bias=none": (
        "180001020304 0900 0300 4000 ffffffffffffffff"
    ),
    "QUANT R1, R2": "19000102ffff",
    "SILU_MUL R1, R2, R3": "1a00010203ff",
    "ADD R1, R2, R3": "1b00010203ff",
    "IADD R1, R2, R3": "1c00010203ff",
}


@pytest.mark.parametrize("text", GOLDEN)
def test_encodings_never_change(text):
    assert assemble(text).program.instructions[0].encode() == bytes.fromhex(GOLDEN[text]).ljust(32, b"\0")


def test_every_opcode_has_a_golden_encoding():
    assert {text.split()[0].split(".")[0] for text in GOLDEN} == {row.name for row in OPCODES}


def test_labels_comments_and_data():
    source = assemble(
        """
        .model "smollm2:135m"   ; the model
        a: b:  JUMP label=end   ; two labels
               LOAD R1, low=@fix, high=0
        end:
        .data
               .u8 1
               .align 4
        fix:   .record 20 7 8
               .bytes 00ff 10
               .f32 0.5
               .i64 -1
               .f16 1
               .i32 -2
               .zero 2
        """
    )
    jump, load = source.program.instructions
    assert source.model == "smollm2:135m"
    assert jump.integer("label") == 2
    assert load.integer("low") == PROGRAM_OFFSET + 2 * 32 + 4
    assert source.program.data == b"".join(
        [b"\1\0\0\0", pack_record(20, [7, 8]), b"\0\xff\x10", struct.pack("<fqei", 0.5, -1, 1, -2), b"\0\0"]
    )


@pytest.mark.parametrize(
    ("text", "where", "says"),
    [
        ("  NOPE R1", "1:3", "no opcode 'NOPE'"),
        ("HALT\n ADD R1, R2", "2:2", "needs rb"),
        ("ADD R1, R2, R3, R4", "1:1", "3 registers, got 4"),
        ("ADD R1, R2, R16", "1:1", "R0..R15"),
        ("ADD R1, Q2, R3", "1:9", "not a register"),
        ("ADD R1,, R3", "1:8", "nothing before the comma"),
        ("ADD R1, R2,", "1:11", "nothing after the comma"),
        ("JUMP label=nowhere", "1:12", "not a number, a name or a label"),
        ("JUMP to=1", "1:6", "has no field to"),
        ("JUMP", "1:1", "missing fields ['label']"),
        ("SENSE R1, peripheral=256", "1:1", "does not fit its width"),
        ("SENSE.FAST R1, peripheral=VAD", "1:1", "unknown flags"),
        ("a: HALT\na: HALT", "2:1", "defined twice"),
        ("1a: HALT", "1:1", "not a label"),
        (".f32 1", "1:1", "data goes after .data"),
        ("NORM R1, R2, R3, eps=1e39", "1:1", "does not fit its width"),
        (".data\nHALT", "2:1", "in the data section"),
        (".data\n.f32", "2:1", "of nothing"),
        (".data\n.f32 x", "2:6", "not a number"),
        (".data\n.u8 256", "2:1", "does not fit"),
        (".data\n.bytes 0", "2:1", "pairs of hex digits"),
        (".data\n.align 0", "2:1", "takes one number"),
        (".data\n.record 1 99999999999", "2:1", "does not fit"),
        ('.model "a', "1:8", "closing quote"),
        ("NORM R1, R2, R3, eps=1, R4", "1:25", "expected a register"),
    ],
)
def test_errors_say_where_and_what(text, where, says):
    with pytest.raises(ProgramError) as caught:
        assemble(text)
    assert str(caught.value).startswith(f"{where}: ") and says in str(caught.value)


@given(st.text(alphabet='HALT JUMPRl0123=,:@.-;"\nadtesxf_', max_size=60))
def test_any_text_assembles_or_is_refused_with_its_place(text):
    place = None
    try:
        assemble(text)
    except ProgramError as error:
        place = str(error).split(":")
    assert place is None or (place[0].isdigit() and place[1].isdigit())


@pytest.mark.parametrize("value", [0.0, -0.0, math.inf, -math.inf, 1e-45, 0.1, 3.4028234663852886e38])
def test_floats_print_short_and_read_back(value):
    text = format_f32(value)
    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    assert format_f32(struct.unpack("<f", struct.pack("<f", 0.1))[0]) == "0.1"


def test_enumerations_are_printed_by_name_and_numbers_otherwise():
    text = disassemble(assemble(f"STREAM R1, R2, channel={Channel.INJECT:d}\nSTREAM R1, channel=77").program)
    assert "channel=INJECT" in text and "channel=77" in text
    tensor = f"TENSOR R1, dtype={DType.BF16:d}, rank=1, dim0=1, dim1=1, dim2=1, dim3=1, offset={NO_OFFSET}"
    assert "dtype=BF16" in disassemble(assemble(tensor).program) and "offset=none" in disassemble(
        assemble(tensor).program
    )


@pytest.mark.parametrize(
    "line", [".record nan_0000c07f 1", ".record 1 nan_0000c07f", ".align nan_0000c07f", ".zero nan_0000807f"]
)
def test_numbers_that_are_no_integers_are_refused_in_place(line):
    with pytest.raises(ProgramError, match=r"^2:1: "):
        assemble(f".data\n{line}")
