"""Which register names which tensor: a TENSOR instruction is added where one is needed and not there."""

from __future__ import annotations

from unsay.compiler.lower.memory import Tensor
from unsay.isa.opcodes import NUM_REGISTERS
from unsay.isa.program import Instruction, make

_USABLE = range(1, NUM_REGISTERS)
"""R0 reads zero."""


class Registers:
    """Appends to `code`. The register least recently used is given up; an instruction names at most four."""

    def __init__(self, code: list[Instruction]) -> None:
        self._code = code
        self._held: dict[Tensor, int] = {}
        """In order of use, oldest first."""

    def name(self, tensor: Tensor) -> int:
        """A register that names the tensor."""
        register = self._held.pop(tensor, None)
        if register is None:
            register = self._take()
            self._code.append(_tensor_instruction(register, tensor))
        self._held[tensor] = register
        return register

    def _take(self) -> int:
        if len(self._held) < len(_USABLE):
            return _USABLE[len(self._held)]
        oldest = next(iter(self._held))
        return self._held.pop(oldest)


def _tensor_instruction(register: int, tensor: Tensor) -> Instruction:
    dims = (*tensor.dims, *(1,) * (4 - len(tensor.dims)))
    flags = [f"REGION{bit}" for bit in range(2) if tensor.region >> bit & 1]
    return make(
        "TENSOR", register, flags=[*flags, *tensor.flags], dtype=tensor.dtype, rank=len(tensor.dims),
        dim0=dims[0], dim1=dims[1], dim2=dims[2], dim3=dims[3], offset=tensor.offset,
    )  # fmt: skip
