"""What casts, compares, float operations and named instructions of LLVM do to values (see values.py and lanes.py).

Of floats nothing is known but that an operation is a function of its operands. `bitcast` of integers read from memory
reads the same memory as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.text import KernelTextError
from unsay.compiler.verify.kernels.values import (
    OPAQUE,
    Opaque,
    Scalar,
    Value,
    Vector,
    bits,
    call,
    element,
    is_float,
    is_opaque,
    lanes_in,
    lanewise,
)
from unsay.compiler.verify.smt import Term, z3

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.machine import Machine

Model: TypeAlias = Callable[..., Value]


def float_operation(op: str, *operands: Term) -> Term:
    """fadd, fsub, fmul, fdiv, fneg, fma and so on."""
    return call(op, *operands)


def compare(op: str, condition: str, left: Scalar, right: Scalar) -> Term:
    """icmp and fcmp of scalars."""
    if op == "fcmp":
        return call(f"fcmp_{condition}", left, right, result=1)
    a, b = (side.term() if isinstance(side, Affine) else side.term if isinstance(side, Lane) else side
            for side in (left, right))  # fmt: skip
    return _signed(condition, a, b)


def _signed(condition: str, a: Term, b: Term) -> Term:
    match condition:
        case "eq":
            return a == b
        case "ne":
            return a != b
        case "slt":
            return a < b
        case "sle":
            return a <= b
        case "sgt":
            return a > b
        case _:
            assert condition == "sge", condition
            return a >= b


def cast(machine: Machine, op: str, value: Value, source: str, target: str) -> Value:
    """Any conversion; of indexes only those that keep the value."""
    if isinstance(value, Affine):
        return value if bits(target) >= bits(source) else machine.unknown(op, target)
    if op == "bitcast":
        return _bitcast(value, source, target)
    if element(target) == "i64":
        return OPAQUE if isinstance(value, Opaque) else machine.unknown(op, target)
    return lanewise(partial(_cast_scalar, op, source, target), value)


def _cast_scalar(op: str, source: str, target: str, value: Scalar) -> Scalar:
    if element(source) == "i1":
        yes = -1 if op == "sext" else 1
        return Lane(z3.If(value, z3.BitVecVal(yes, 32), z3.BitVecVal(0, 32)), min(yes, 0), max(yes, 0))
    if op == "fptosi":
        return lanes.word(call(op, value))
    if not isinstance(value, Lane):
        return call(op, value, result=bits(target))
    match op:
        case "sext":
            return value
        case "zext":
            return lanes.unsigned(value, bits(source))
        case "trunc":
            return lanes.wrapped(value, bits(target))
        case "uitofp" if bits(source) < lanes.WORD:
            return call("sitofp", lanes.unsigned(value, bits(source)).term)
        case _:
            return call(op, value.term)


def _bitcast(value: Value, source: str, target: str) -> Value:
    """Integers of 32 bits as bytes, bytes as integers of 16 or 32 bits, and f32 as its bits and back."""
    if is_opaque(value):
        return OPAQUE
    if is_float(target):
        return lanewise(_bits_of, value)
    if is_float(source):
        return lanewise(lanes.word, value)
    if bits(source) == 8:
        size, made = bits(target) // 8, lanes_in(value)
        return Vector(tuple(lanes.joined(made[i : i + size]) for i in range(0, len(made), size)))
    assert (bits(source), bits(target)) == (32, 8), (source, target)
    parts = value.lanes if isinstance(value, Vector) else (value,)
    return Vector(tuple(part for lane in parts for part in _bytes(lane)))


def _bits_of(lane: Lane) -> Term:
    return lane.term


def _bytes(lane: Scalar) -> tuple[Lane, ...]:
    """The four bytes of a word, lowest first."""
    if not isinstance(lane, Lane):
        raise KernelTextError("a lane without a value is read")
    if lane.parts is not None:
        return lane.parts
    return tuple(lanes.byte(z3.Extract(8 * i + 7, 8 * i, lane.term)) for i in range(4))


def _grouped(model: Callable[..., Lane], size: int) -> Model:
    """Of vectors: each result from `size` neighbours of both operands."""

    def run(left: Value, right: Value) -> Value:
        a, b = lanes_in(left), lanes_in(right)
        return Vector(tuple(model(a[i : i + size], b[i : i + size]) for i in range(0, len(a), size)))

    return run


def _accumulating(model: Callable[..., Lane]) -> Model:
    """Of vectors: each lane of the first operand, and four neighbours of the others."""

    def run(total: Value, left: Value, right: Value) -> Value:
        a, b = lanes_in(left), lanes_in(right)
        places = enumerate(lanes_in(total))
        return Vector(tuple(model(lane, a[4 * i : 4 * i + 4], b[4 * i : 4 * i + 4]) for i, lane in places))

    return run


def _smmla(total: Value, left: Value, right: Value) -> Value:
    return Vector(tuple(lanes.smmla(lanes_in(total), lanes_in(left), lanes_in(right))))


def _sum(vector: Value) -> Value:
    return lanes.total_of(lanes_in(vector))


def _float(name: str) -> Model:
    return partial(lanewise, partial(float_operation, name))


INTRINSICS: tuple[tuple[str, Model], ...] = (
    (r"llvm\.x86\.avx512\.vpdpbusd\.\d+", _accumulating(lanes.dpbusd)),
    (r"llvm\.x86\.avx2\.pmadd\.ub\.sw", _grouped(lanes.maddubs, 2)),
    (r"llvm\.x86\.avx2\.pmadd\.wd", _grouped(lanes.maddwd, 2)),
    (r"llvm\.aarch64\.neon\.sdot\.v4i32\.v16i8", _accumulating(lanes.sdot)),
    (r"llvm\.aarch64\.neon\.smmla\.v4i32\.v16i8", _smmla),
    (r"llvm\.wasm\.dot", _grouped(lanes.maddwd, 2)),
    (r"llvm\.vector\.reduce\.add\.v\d+i32", _sum),
    (r"llvm\.fma\..*", _float("fma")),
    (r"llvm\.roundeven\..*", _float("roundeven")),
    (r"llvm\.sqrt\..*", _float("sqrt")),
    (r"llvm\.fabs\..*", _float("fabs")),
)
"""Names of instructions as patterns, and their models."""
