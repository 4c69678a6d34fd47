"""Values of a function being written, and its variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unsay.compiler.codegen.builder.kinds import BOOL, F16, F32, F64, I16, I64, PTR, element_type, vector, with_element

if TYPE_CHECKING:
    from unsay.compiler.codegen.builder.function import Function


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value (or constant) of a function; operators emit the instruction for its type."""

    function: Function
    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    def __add__(self, other: Value | float) -> Value:
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("fsub", "sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", "", other)

    def __floordiv__(self, other: Value | int) -> Value:
        return self._binary("", "udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        return self._binary("", "urem", other)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("", "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("", "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("", "xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("", "shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        return self._binary("", "lshr", other)

    def __neg__(self) -> Value:
        return self.function.emit(self.type, f"fneg {self}")

    def at(self, offset: Value | int) -> Value:
        """The address `offset` bytes on."""
        assert self.type == PTR, self
        moved = self.function.operand(I64, offset)
        return self.function.emit(PTR, f"getelementptr i8, {self}, {moved}")

    def compare(self, condition: str, other: Value | float) -> Value:
        """`fcmp` or `icmp` with LLVM's name of the condition."""
        right = self.function.operand(self.type, other)
        name = "fcmp" if element_type(self.type) in (F32, F64) else "icmp"
        return self.function.emit(with_element(self.type, BOOL), f"{name} {condition} {self}, {right.text}")

    def cast(self, how: str, kind: str) -> Value:
        """A conversion, by LLVM's name: sext, zext, trunc, sitofp, fptosi, fpext, fptrunc, bitcast."""
        if F16 in (element_type(self.type), element_type(kind)) and how in self.function.module.substitutes:
            return self._substituted_half(how, kind)
        return self.function.emit(kind, f"{how} {self} to {kind}")

    def _substituted_half(self, how: str, kind: str) -> Value:
        """Halves go in and come out as i16: without instructions for them, they are no arguments either."""
        if how == "fpext":
            bits = self.cast("bitcast", with_element(self.type, I16))
            return self.function.substitute(how, kind, bits)
        return self.function.substitute(how, with_element(kind, I16), self).cast("bitcast", kind)

    def splat(self, lanes: int) -> Value:
        """A vector with this scalar in every lane."""
        kind = vector(self.type, lanes)
        first = self.function.emit(kind, f"insertelement {kind} poison, {self}, i32 0")
        return first.shuffle([0] * lanes)

    def shuffle(self, lanes: Sequence[int]) -> Value:
        """The lanes named, of this vector."""
        kind = vector(element_type(self.type), len(lanes))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.function.emit(kind, f"shufflevector {self}, {self.type} poison, <{len(lanes)} x i32> <{mask}>")

    def beside(self, other: Value) -> Value:
        """The lanes of this vector, then those of the other."""
        lanes = 2 * int(self.type[1:].split(" x ")[0])
        mask = ", ".join(f"i32 {lane}" for lane in range(lanes))
        kind = vector(element_type(self.type), lanes)
        return self.function.emit(kind, f"shufflevector {self}, {other}, <{lanes} x i32> <{mask}>")

    def lane(self, index: int) -> Value:
        """One lane, as a scalar."""
        return self.function.emit(element_type(self.type), f"extractelement {self}, i32 {index}")

    def _binary(self, float_name: str, int_name: str, other: Value | float) -> Value:
        name = float_name if element_type(self.type) in (F32, F64) else int_name
        assert name, (self, float_name, int_name)
        right = self.function.operand(self.type, other)
        return self.function.emit(self.type, f"{name} {self}, {right.text}")


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable: what `set` stored last is what `get` loads."""

    address: Value
    type: str

    def get(self) -> Value:
        """The value now."""
        return self.address.function.load(self.type, self.address, align=0)

    def set(self, value: Value | float) -> None:
        """Change it."""
        function = self.address.function
        function.store(function.operand(self.type, value), self.address, align=0)
