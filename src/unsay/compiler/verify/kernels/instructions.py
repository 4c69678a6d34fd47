"""What casts, compares, float operations and named instructions of LLVM do to values (see values.py and lanes.py).

Of floats nothing is known but that an operation is a function of its operands. `bitcast` of integers read from memory
reads the same memory as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.values import (
    OPAQUE,
    Opaque,
    Scalar,
    Value,
    bits,
    call,
    element,
    is_float,
    is_opaque,
    lanewise,
)
from unsay.compiler.verify.smt import Term, z3

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.machine import Machine

Model: TypeAlias = Callable[..., Value]

_SIGNED: dict[str, Callable[[Term, Term], Term]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
}


def float_binary(op: str, *operands: Term) -> Term:
    """fadd, fsub, fmul, fdiv, fneg."""
    return call(op, *operands)


def compare(op: str, condition: str, left: Scalar, right: Scalar, kind: str) -> Term:
    """icmp and fcmp of scalars."""
    if op == "fcmp":
        return call(f"fcmp_{condition}", left, right, result=1)
    if isinstance(left, Affine) and isinstance(right, Affine):
        return _SIGNED[condition](left.term(), right.term())
    if isinstance(left, Lane) and isinstance(right, Lane):
        return _SIGNED[condition](left.term, right.term)
    return z3.BoolVal(condition == "eq") == (left == right)


def cast(machine: Machine, op: str, value: Value, source: str, target: str) -> Value:
    """Any conversion; of indexes only those that keep the value."""
    if isinstance(value, Affine):
        return value if bits(target) >= bits(source) else machine.unknown(f"{op}", target)
    if op == "bitcast":
        return _bitcast(value, source, target)
    if element(target) == "i64":
        return OPAQUE if isinstance(value, Opaque) else machine.unknown(f"{op}", target)
    return lanewise(lambda scalar: _cast_scalar(op, scalar, source, target), value)


def _cast_scalar(op: str, value: Scalar, source: str, target: str) -> Scalar:
    if element(source) == "i1":
        value = Lane(z3.If(value, z3.BitVecVal(1, 32), z3.BitVecVal(0, 32)), 0, 1)
    match op:
        case "sext":
            assert isinstance(value, Lane)
            return value
        case "zext":
            assert isinstance(value, Lane)
            return lanes.unsigned(value, bits(source)) if element(source) != "i1" else value
        case "trunc":
            assert isinstance(value, Lane)
            return lanes.wrapped(value, bits(target))
        case "sitofp" | "uitofp":
            assert isinstance(value, Lane)
            small = op == "uitofp" and bits(source) < lanes.WORD
            return call("sitofp" if small else op, lanes.unsigned(value, bits(source)).term if small else value.term)
        case "fptosi":
            return lanes.word(call(op, value))
        case _:
            return call(op, value, result=bits(target))


def _bitcast(value: Value, source: str, target: str) -> Value:
    """Integers of 32 bits as bytes, and f32 as its bits and back."""
    if is_opaque(value):
        return OPAQUE
    if is_float(target) and isinstance(value, tuple):
        return tuple(lane.term if isinstance(lane, Lane) else OPAQUE for lane in value)
    if is_float(target):
        return value.term if isinstance(value, Lane) else OPAQUE
    if bits(target) == bits(source):
        return lanewise(lambda scalar: lanes.word(scalar), value)
    parts: Sequence[Scalar] = value if isinstance(value, tuple) else (value,)
    if bits(source) == 8 and bits(target) == 32:
        return tuple(_word(parts[i : i + 4]) for i in range(0, len(parts), 4))
    assert bits(source) == 32 and bits(target) == 8, (source, target)
    return tuple(part for lane in parts for part in _bytes(lane))


def _bytes(lane: Scalar) -> tuple[Lane, ...]:
    """The four bytes of a word, lowest first."""
    assert isinstance(lane, Lane), lane
    if lane.parts is not None:
        return lane.parts
    return tuple(lanes.byte(z3.Extract(8 * i + 7, 8 * i, lane.term)) for i in range(4))


def _word(parts: Sequence[Scalar]) -> Lane:
    """A word of four bytes, lowest first."""
    made = [part for part in parts if isinstance(part, Lane)]
    term = z3.Concat(*(z3.Extract(7, 0, part.term) for part in reversed(made)))
    return replace(lanes.word(term), parts=tuple(made))


def _grouped(size: int, model: Callable[..., Lane]) -> Model:
    """Of vectors: each result from `size` neighbours of both operands."""

    def run(left: tuple[Lane, ...], right: tuple[Lane, ...]) -> Value:
        return tuple(model(left[i : i + size], right[i : i + size]) for i in range(0, len(left), size))

    return run


def _accumulating(model: Callable[..., Lane]) -> Model:
    """Of vectors: each lane of the first operand, and four neighbours of the others."""

    def run(total: tuple[Lane, ...], left: tuple[Lane, ...], right: tuple[Lane, ...]) -> Value:
        return tuple(model(t, left[4 * i : 4 * i + 4], right[4 * i : 4 * i + 4]) for i, t in enumerate(total))

    return run


def _saturating_add(left: Value, right: Value) -> Value:
    return lanewise(lambda a, b: lanes.saturated(lanes.plus(a, b), 16), left, right)


def _float_call(name: str) -> Model:
    return lambda *operands: lanewise(lambda *scalars: call(name, *scalars), *operands)


INTRINSICS: tuple[tuple[str, Model], ...] = (
    (r"llvm\.x86\.avx512\.vpdpbusd\.\d+", _accumulating(lanes.dpbusd)),
    (r"emulated_dpbusd_\d+", _accumulating(lanes.dpbusd)),
    (r"llvm\.x86\.avx2\.pmadd\.ub\.sw", _grouped(2, lanes.maddubs)),
    (r"llvm\.x86\.avx2\.pmadd\.wd", _grouped(2, lanes.maddwd)),
    (r"llvm\.x86\.avx2\.psign\.b", lambda x, w: lanewise(lanes.sign, x, w)),
    (r"llvm\.aarch64\.neon\.sdot\..*", _accumulating(lanes.sdot)),
    (r"llvm\.aarch64\.neon\.smmla\..*", lambda total, left, right: tuple(lanes.smmla(total, left, right))),
    (r"llvm\.wasm\.dot", _grouped(2, lanes.maddwd)),
    (r"llvm\.sadd\.sat\.v\d+i16", _saturating_add),
    (r"llvm\.abs\.v\d+i8", lambda w, _poison: lanewise(lanes.magnitude, w)),
    (r"llvm\.vector\.reduce\.add\.v\d+i32", lambda vector: lanes.total_of(vector)),
    (r"llvm\.fma\..*", _float_call("fma")),
    (r"llvm\.roundeven\..*", _float_call("roundeven")),
    (r"llvm\.sqrt\..*", _float_call("sqrt")),
    (r"llvm\.fabs\..*", _float_call("fabs")),
)
"""Names of instructions as patterns, and their models. `emulated_dpbusd` is executed as text where it is defined."""
