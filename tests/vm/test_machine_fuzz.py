"""Programs that mean harm: whatever the bytes, they end with a result or a typed error, and the tree stays sound."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.images import plain_image
from unsay.errors import UnsayError
from unsay.isa.formats import DType
from unsay.isa.opcodes import NO_OFFSET, NO_REGISTER, OPCODES, Peripheral
from unsay.isa.program import Instruction, Program, make
from unsay.kv.pages import PagePool
from unsay.kv.tree import KvTree
from unsay.runtime.null import NullExecutor
from unsay.vm.assembler import assemble
from unsay.vm.context import Context
from unsay.vm.machine import Machine
from unsay.vm.peripherals import Peripherals

_REGISTERS = st.sampled_from([1, 1, 1, 2, 2, 3, 0])
_SMALL = st.sampled_from([32, 32, 64, 16, 1, 2, 3, 4, 288, 0])
_OFFSETS = st.sampled_from([NO_OFFSET, 0, NO_OFFSET, 64, 4096, NO_OFFSET, 2**63, 2**63 + 64, 2**28 - 64, 2**40])
_TYPES = st.sampled_from([*[DType.F32] * 9, *[DType.Q8A] * 3, *DType, 0x77])
_FLOATS = st.sampled_from([0.0, 0.125, 1e-5, float("inf"), float("nan")])
_BY_NAME = {"offset": _OFFSETS, "hidden": _OFFSETS, "bias": _OFFSETS, "dtype": _TYPES, "hidden_dtype": _TYPES}
_RANKS = st.sampled_from([*[2] * 9, 1, 3, 4, 0, 5])
_TENSOR_FLAGS = st.sampled_from([0, 0, 0, 2, 4, 4, 8, 1, 3, 12, 31])


@st.composite
def instructions(draw):
    row = draw(st.sampled_from([*OPCODES, *(op for op in OPCODES if op.tensor)]))
    optional = st.one_of(_REGISTERS, st.just(NO_REGISTER))
    registers = tuple(
        draw(optional if role.endswith("?") else _REGISTERS) if role else NO_REGISTER for role in row.registers
    )
    payload = tuple(
        draw(_FLOATS if code == "f" else _BY_NAME.get(name, _RANKS if code == "B" else _SMALL))
        for name, code in row.fields
    )
    flags = draw(_TENSOR_FLAGS if row.name == "TENSOR" else st.integers(0, 2 ** len(row.flags) - 1))
    return Instruction(row, flags, registers, payload)


TENSORS = assemble(
    """
    TENSOR.DIM_TOKENS R1, dtype=F32, rank=2, dim0=16, dim1=64, dim2=1, dim3=1, offset=none
    TENSOR.DIM_TOKENS R2, dtype=Q8A, rank=2, dim0=16, dim1=64, dim2=1, dim3=1, offset=none
    TENSOR.REGION1 R3, dtype=Q4_1, rank=2, dim0=64, dim1=64, dim2=1, dim3=1, offset=64
    """
).program.instructions
"""Three that are in order, so that what follows has something to work on."""


@pytest.fixture(scope="module")
def image(tiny_path):
    return plain_image(tiny_path)


class StrictExecutor(NullExecutor):
    """Does what a native step cannot: look whether it has a row of the embedding for every token."""

    def run(self, batch):
        assert all(0 <= token_id < self.spec.vocab_size for token_id in batch.token_ids), batch.token_ids.tolist()
        return super().run(batch)


_TOKENS = st.one_of(st.integers(0, 280), st.integers(0, 280), st.sampled_from([292, 293, 2**31 - 1]))


@settings(max_examples=150, deadline=None)
@given(st.lists(instructions(), max_size=12), st.binary(max_size=200), st.lists(_TOKENS, max_size=20), st.booleans())
def test_no_program_breaks_the_machine(image, code, data, token_ids, steps_first):
    tree = KvTree(PagePool(image.manifest.spec.kv_layout.page_bytes, 64))
    machine = Machine(StrictExecutor(image, tree.pool.memory, 1), image.weights)
    context = Context(tree.root())
    context.append(token_ids)
    peripherals = Peripherals()
    peripherals.post(Peripheral.USER_INPUT, [1, 2])
    peripherals.post(Peripheral.USER_INPUT, [3], target=1)
    peripherals.close()
    program = Program.from_bytes(Program((*[make("STEP", 1)] * steps_first, *TENSORS, *code), data).to_bytes())
    outcome = None
    try:
        for _ in machine.execute(program, context, peripherals=peripherals, max_steps=200):
            pass
    except UnsayError as error:
        outcome = error
    assert outcome is None or str(outcome)
    tree.check()
