"""What the names of a kernel stand for while it is executed symbolically.

i64            Affine               an index: integers, exact; `index.py` shows that none leaves 64 bits
ptr            Pointer              bytes from the start of an object
i1             Z3 Bool
i8 i16 i32     Lane                 bit-vectors with bounds
half, float    16- or 32-bit term   the bits; operations on them are uninterpreted functions, so equality of two
                                    floats is proved only where the same operations make them in the same order
<n x t>        tuple of those
anything       OPAQUE               where only addresses are looked at
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from unsay.compiler.verify.kernels.affine import Affine
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.smt import Term, z3


@dataclass(frozen=True, slots=True)
class Pointer:
    """`offset` bytes into an object. `other`: the pointer may be this one instead (a select of two)."""

    object: str
    offset: Affine
    other: Pointer | None = None

    def at(self, offset: Affine | int) -> Pointer:
        """So many bytes on."""
        other = None if self.other is None else self.other.at(offset)
        return Pointer(self.object, self.offset + offset, other)


class Opaque:
    """A value nothing is known of; what is computed from it is opaque too."""

    def __repr__(self) -> str:
        return "opaque"


OPAQUE = Opaque()

Scalar: TypeAlias = Affine | Pointer | Lane | Opaque | Term


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """Lanes, lowest first."""

    lanes: tuple[Scalar, ...]

    def __getitem__(self, lane: int) -> Scalar:
        return self.lanes[lane]

    def __len__(self) -> int:
        return len(self.lanes)


Value: TypeAlias = Scalar | Vector

_BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32, "double": 64, "ptr": 64}


def lanes_of(kind: str) -> int:
    """16 of <16 x float>; 0 of a scalar type."""
    return int(kind[1:].split(" x ")[0]) if kind.startswith("<") else 0


def element(kind: str) -> str:
    """float of <16 x float>; a scalar type is its own element."""
    return kind.rstrip(">").split(" x ")[1] if kind.startswith("<") else kind


def bits(kind: str) -> int:
    """Bits of an element of the type."""
    return _BITS[element(kind)]


def num_bytes(kind: str) -> int:
    """Bytes of a value of the type in memory."""
    return max(1, lanes_of(kind)) * bits(kind) // 8


def is_float(kind: str) -> bool:
    """Whether elements are half or float."""
    return element(kind) in ("half", "float", "double")


def float_constant(text: str) -> Term:
    """The f32 bits of a literal in LLVM's form, which are those of a double."""
    (number,) = struct.unpack("<d", struct.pack("<Q", int(text, 16)))
    return f32(number)


def f32(number: float) -> Term:
    """The bits of a number rounded to f32."""
    (word,) = struct.unpack("<I", struct.pack("<f", number))
    return z3.BitVecVal(word, 32)


def call(name: str, *arguments: Term, result: int = 32) -> Term:
    """An operation on floats: equal arguments give equal results, and no more is known. result: bits, 1 a Bool."""
    return _function(name, tuple(argument.size() for argument in arguments), result)(*arguments)


@cache
def _function(name: str, sizes: tuple[int, ...], result: int) -> Term:
    sort = z3.BoolSort() if result == 1 else z3.BitVecSort(result)
    return z3.Function(name, *map(z3.BitVecSort, sizes), sort)


def is_opaque(value: Value) -> bool:
    """Whether nothing is known of a value, or of one of its lanes."""
    return isinstance(value, Opaque) or (isinstance(value, Vector) and any(isinstance(x, Opaque) for x in value.lanes))


def lanewise(operation: Callable[..., Scalar], *operands: Value) -> Value:
    """The operation on each lane; scalars with scalars. What has an opaque operand is opaque."""
    if any(isinstance(operand, Opaque) for operand in operands):
        return OPAQUE
    vectors = [operand.lanes for operand in operands if isinstance(operand, Vector)]
    if not vectors:
        return operation(*operands)
    opaque = [any(isinstance(lane, Opaque) for lane in row) for row in zip(*vectors, strict=True)]
    rows = zip(opaque, zip(*vectors, strict=True), strict=True)
    return Vector(tuple(OPAQUE if hidden else operation(*row) for hidden, row in rows))


def lanes_in(value: Value) -> tuple[Lane, ...]:
    """The lanes of a vector of integers."""
    assert isinstance(value, Vector), value
    made = tuple(lane for lane in value.lanes if isinstance(lane, Lane))
    assert len(made) == len(value), value
    return made
