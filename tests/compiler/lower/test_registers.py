from hypothesis import given
from hypothesis import strategies as st

from unsay.compiler.lower.memory import Tensor
from unsay.compiler.lower.registers import Registers
from unsay.isa.formats import DType
from unsay.isa.opcodes import Region
from unsay.isa.program import Instruction


def _tensor(number: int) -> Tensor:
    return Tensor(Region.PERSISTENT, DType.F32, (16,), number * 64)


@given(st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), max_size=40))
def test_every_register_of_an_instruction_names_what_was_asked(instructions: list[list[int]]):
    code: list[Instruction] = []
    registers = Registers(code)
    held: dict[int, int] = {}
    for numbers in instructions:
        start = len(code)
        named = [registers.name(_tensor(number)) for number in numbers]
        held |= {op.registers[0]: op.integer("offset") // 64 for op in code[start:]}
        assert [held[register] for register in named] == numbers
        assert all(1 <= register <= 15 for register in named)


def test_a_tensor_still_held_costs_no_instruction():
    code: list[Instruction] = []
    registers = Registers(code)
    for number in range(15):
        registers.name(_tensor(number))
    assert registers.name(_tensor(0)) == 1 and len(code) == 15
    assert registers.name(_tensor(99)) == 2, "tensor 1 is the least recently used"
