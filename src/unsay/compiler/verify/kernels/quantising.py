"""Quantising kernels: the emitted QUANT makes what N3 and N3w say, and what N4 takes for granted follows from it.

    emitted = N3, N3w     the text of the kernel is executed; every byte, scale, sum and flag of a block is the formula
                          of docs/numerics.md: the same operations on floats in the same order, integers as bit-vectors
    N3w => N4             with |q| <= 127, or 16256 in a wide block (T5: `rounding`): q = 128 hi + lo, hi in -127..127,
                          lo in -127..127 (-64..63 if wide), hi = 0 in a narrow block

A maximum does not depend on the order it is taken in; the order of the kernel is used here, halves first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.elementwise import quantise
from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.equality import same
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.machine import Machine
from unsay.compiler.verify.kernels.products import Activations
from unsay.compiler.verify.kernels.state import Cell
from unsay.compiler.verify.kernels.text import functions
from unsay.compiler.verify.kernels.values import Pointer, Scalar, Vector, call, f32
from unsay.compiler.verify.obligation import NotProvedError, Result, Status, named
from unsay.compiler.verify.smt import Term, decide, z3
from unsay.isa.formats import QUANT_BLOCK, WIDE_FACTOR, DType

_CAPACITY, _WIDTH = 8, 64
_SMALLEST = 2.0**-100


@dataclass(frozen=True, slots=True)
class Block:
    """What a block becomes: 32 integers q, the scale as f32 bits, and whether it is wide."""

    q: list[Term]
    scale: Term
    wide: Term

    @property
    def hi(self) -> list[Term]:
        """The high parts, 32 bits."""
        return [z3.If(self.wide, (q + 64) >> 7, z3.BitVecVal(0, 32)) for q in self.q]

    @property
    def lo(self) -> list[Term]:
        """The low parts, 32 bits."""
        return [q - 128 * hi for q, hi in zip(self.q, self.hi, strict=True)]


def block_of(x: Sequence[Term], can_be_wide: bool) -> Block:
    """N3, or N3w, of 32 values."""
    sizes = [call("fabs", value) for value in x]
    peak = _tree(_maximum, [_maximum(a, b) for a, b in zip(sizes[:16], sizes[16:], strict=True)])
    total = _tree(_plus, [_plus(a, b) for a, b in zip(sizes[:16], sizes[16:], strict=True)])
    empty = call("fcmp_olt", peak, f32(_SMALLEST), result=1)
    large = z3.And(call("fcmp_ogt", call("fmul", peak, f32(WIDE_FACTOR)), total, result=1),
                   call("fcmp_oge", peak, f32(_SMALLEST), result=1))  # fmt: skip
    wide = large if can_be_wide else z3.BoolVal(False)
    most = z3.If(wide, f32(16256.0), f32(127.0)) if can_be_wide else f32(127.0)
    inverse = z3.If(empty, f32(0.0), call("fdiv", most, peak))
    q = [call("fptosi", call("roundeven", call("fmul", value, inverse))) for value in x]
    return Block(q, z3.If(empty, f32(0.0), call("fdiv", peak, most)), wide)


def _maximum(a: Term, b: Term) -> Term:
    return z3.If(call("fcmp_ogt", a, b, result=1), a, b)


def _plus(a: Term, b: Term) -> Term:
    return call("fadd", a, b)


def _tree(operation: Callable[[Term, Term], Term], values: list[Term]) -> Term:
    """N1: lane j with lane j + h, for h = 8, 4, 2, 1."""
    for half in (8, 4, 2, 1):
        values = [operation(values[lane], values[(lane + half) % 16]) for lane in range(16)]
    return values[0]


class _RowsWorld:
    """f32 rows of x."""

    variable_range = (0, 0)
    has_data = True

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        return machine.named_leaf(pointer, kind)

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        """The matter of bounds.py."""

    def enter(self, machine: Machine, name: str, arguments: object) -> bool:
        return False


def prove_quantising(dtype: DType, text: str | None = None) -> Result:
    """Whether the kernel QUANT to Q8A or Q8W makes the formula's blocks. text: another text of it (a mutant)."""
    module = Module("")
    name = quantise(module, dtype, _WIDTH, _CAPACITY)
    machine = Machine(functions(text or module.text()), _RowsWorld())
    count, threads = (of(machine.symbol(what, 1, _CAPACITY)) for what in ("count", "threads"))
    thread = of(machine.symbol("thread", 0, _CAPACITY - 1))
    machine.define(thread.term() < threads.term())
    objects = [Pointer(what, Affine()) for what in ("args", "out", "x")]
    machine.run(name, objects[0], thread, threads, count, *objects[1:])
    if not any(loop.covers(_WIDTH, QUANT_BLOCK) for loop in machine.loops):
        return Result(Status.REFUTED, "no loop goes over all blocks of a row")
    return _Made(machine, dtype).prove()


class _Made:
    """What one iteration of the kernel stored, array by array."""

    def __init__(self, machine: Machine, dtype: DType) -> None:
        self.arrays: dict[str, dict[Affine, Cell]] = {}
        layout = Activations(_CAPACITY, _WIDTH)
        for offset, cell in machine.memory["out"].items():
            name = layout.array_of(offset)
            self.arrays.setdefault(name, {})[offset - layout.starts[name]] = cell
        names = ["lo", "scale", "sum"] + ["hi", "wide"] * (dtype is DType.Q8W)
        if sorted(self.arrays) != sorted(names):
            raise NotProvedError(Result(Status.REFUTED, f"it stores {sorted(self.arrays)}"), "arrays")
        self.first = min(self.arrays["lo"], key=lambda offset: offset.constant)
        self.dtype = dtype
        start = Pointer("x", self.first * 4)
        x = [machine.named_leaf(start.at(4 * k), "float") for k in range(QUANT_BLOCK)]
        self.block = block_of(x, dtype is DType.Q8W)

    def prove(self) -> Result:
        """Every element of every array, at the place of the block."""
        total = self.block.q[0]
        for q in self.block.q[1:]:
            total = total + q
        flag = z3.If(self.block.wide, z3.BitVecVal(1, 32), z3.BitVecVal(0, 32))
        results = {"lo": self._bytes("lo", self.block.lo), "sum": self._word("sum", total)}
        results["scale"] = self._word("scale", self.block.scale)
        if self.dtype is DType.Q8W:
            results |= {"hi": self._bytes("hi", self.block.hi), "wide": self._word("wide", flag)}
        return named(results)

    def _bytes(self, array: str, wanted: Sequence[Term]) -> Result:
        results: dict[str, Result] = {}
        for k in range(QUANT_BLOCK):
            cell = self.arrays[array].get(self.first + k // 16 * 16)
            if cell is None or not isinstance(cell.value, Vector):
                return Result(Status.REFUTED, f"nothing is stored at {k}")
            made = cell.value[k % 16]
            assert isinstance(made, Lane), made
            results[str(k)] = self._same(z3.Extract(7, 0, made.term), z3.Extract(7, 0, wanted[k]))
        return named(results)

    def _word(self, array: str, wanted: Term) -> Result:
        ((offset, cell),) = self.arrays[array].items()
        if offset * 8 != self.first:
            return Result(Status.REFUTED, f"it is stored at [{offset}], the block begins at [{self.first}]")
        made = cell.value.term if isinstance(cell.value, Lane) else cell.value
        return self._same(made, wanted)

    def _same(self, made: Term, wanted: Term) -> Result:
        """In a narrow and in a wide block; an integer that both round in the same way has a name of its own."""
        names = [(q, z3.BitVec(f"q{k}", 32)) for k, q in enumerate(self.block.q)]
        made, wanted = (z3.substitute(term, *names) for term in (made, wanted))
        if self.dtype is DType.Q8A:
            return same(made, wanted)
        cases = {str(flag): (self.block.wide, z3.BoolVal(flag)) for flag in (False, True)}
        return named(
            {name: same(*(z3.substitute(term, case) for term in (made, wanted))) for name, case in cases.items()}
        )


def prove_premises(lift: int = 64) -> Result:
    """What N4 takes for granted of q in two planes. lift: what is added before the shift."""
    q, wide = z3.BitVec("q", 32), z3.Bool("wide")
    block = Block([q], z3.BitVecVal(0, 32), wide)
    hi = z3.If(wide, (q + lift) >> 7, z3.BitVecVal(0, 32))
    lo = q - 128 * hi
    known = z3.And(q <= z3.If(wide, z3.BitVecVal(16256, 32), 127), q >= z3.If(wide, z3.BitVecVal(-16256, 32), -127))
    kept = z3.And(z3.SignExt(24, z3.Extract(7, 0, hi)) == hi, z3.SignExt(24, z3.Extract(7, 0, lo)) == lo)
    ranges = z3.And(hi >= -127, hi <= 127, lo >= -127, lo <= 127, z3.Implies(wide, z3.And(lo >= -64, lo <= 63)))
    narrow = z3.Implies(z3.Not(wide), z3.And(hi == 0, lo == q))
    formula = z3.And(block.hi[0] == hi, block.lo[0] == lo) if lift == 64 else z3.BoolVal(True)
    return decide(z3.And(kept, ranges, narrow, formula, 128 * hi + lo == q), known)
