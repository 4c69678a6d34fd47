"""Programs as bytes: what is written is read back, and nothing else is read."""

from __future__ import annotations

import pytest

from unsay.errors import ProgramError
from unsay.isa.program import Program, decode, make

PROGRAM = Program((make("LOAD", 1, low=7, high=0), make("HALT")), b"data")


def test_a_program_is_read_back() -> None:
    assert Program.from_bytes(PROGRAM.to_bytes()) == PROGRAM


@pytest.mark.parametrize(
    ("offset", "what"), [(0, "magic"), (4, "version"), (6, "reserved"), (8, "header"), (24, "reserved")]
)
def test_every_header_field_is_looked_at(offset: int, what: str) -> None:
    blob = bytearray(PROGRAM.to_bytes())
    blob[offset] ^= 1
    with pytest.raises(ProgramError, match=what):
        Program.from_bytes(bytes(blob))


@pytest.mark.parametrize("size", [0, 31, 63, 99])
def test_a_cut_off_program_is_refused(size: int) -> None:
    with pytest.raises(ProgramError, match="bytes"):
        Program.from_bytes(PROGRAM.to_bytes()[:size])


def test_padding_that_is_not_zero_is_refused() -> None:
    instruction = bytearray(make("HALT").encode())
    instruction[-1] = 1
    with pytest.raises(ProgramError, match="must be zero"):
        decode(bytes(instruction))


@pytest.mark.parametrize("fields", [{}, {"low": 1}, {"low": 1, "high": 2, "more": 3}, {"low": -1, "high": 0}])
def test_fields_that_do_not_fit_the_table_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ProgramError, match="LOAD"):
        make("LOAD", 1, **fields)
