"""Online softmax (N9): merging parts keeps what a softmax needs, and the emitted merge is that merge.

Two claims that meet in one formula, `merge` below, which is N9 written over any arithmetic:

    emitted = N9      the text of `merge_function` is executed: state' is `merge` with N2 for exp, step by step
    N9 = softmax      over the reals, E = exp (E > 0, E(x - y) * E(y) = E(x)): if before
                          L * E(M) = sum of E(s) so far          O[d] * E(M) = sum of E(s) * v[d] so far
                      and l, m, o say the same of the next part, then the same holds after with N, L', O' of all of it.

Division by L is safe: a part of at least one key has l >= 1, because its largest score gives E(0) = 1, and no part is
attended to that has no key (`masked` in bounds.py). Without a key m is -inf, and m - m is no number: the guard is
needed, which a mutant shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.attention_part import merge_function
from unsay.compiler.codegen.kernels.attention_run import Attention
from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine
from unsay.compiler.verify.kernels.equality import same
from unsay.compiler.verify.kernels.machine import Loop, Machine
from unsay.compiler.verify.kernels.text import functions
from unsay.compiler.verify.kernels.values import Pointer, Scalar, Vector, call, f32
from unsay.compiler.verify.obligation import Result, Status, all_of, named
from unsay.compiler.verify.smt import Term, decide, z3
from unsay.isa.formats import ROW_GROUP

_MERGE = re.compile(r"define \S+ \S+ @(merge_states_(\d+)x(\d+))\(")


class Arithmetic(Protocol):
    """What N9 is written over."""

    def add(self, a: Term, b: Term) -> Term: ...

    def sub(self, a: Term, b: Term) -> Term: ...

    def mul(self, a: Term, b: Term) -> Term: ...

    def fma(self, a: Term, b: Term, c: Term) -> Term: ...

    def maximum(self, a: Term, b: Term) -> Term: ...

    def exp(self, x: Term) -> Term: ...


class Floats:
    """f32 as bits, every operation one of which nothing is known."""

    def add(self, a: Term, b: Term) -> Term:
        return call("fadd", a, b)

    def sub(self, a: Term, b: Term) -> Term:
        return call("fsub", a, b)

    def mul(self, a: Term, b: Term) -> Term:
        return call("fmul", a, b)

    def fma(self, a: Term, b: Term, c: Term) -> Term:
        return call("fma", a, b, c)

    def maximum(self, a: Term, b: Term) -> Term:
        return z3.If(call("fcmp_ogt", a, b, result=1), a, b)

    def exp(self, x: Term) -> Term:
        """N2. For -88 n is -127, so that 2^n comes out as 0, and y is a number above 0: y * 0 is +0."""
        x = z3.If(call("fcmp_ogt", x, f32(88.0), result=1), f32(88.0), x)
        x = z3.If(call("fcmp_olt", x, f32(-87.33), result=1), f32(-88.0), x)
        n = call("roundeven", self.mul(x, f32(1.44269504088896341)))
        r = self.fma(n, f32(2.12194440e-4), self.fma(n, f32(-0.693359375), x))
        p = f32(1.9875691500e-4)
        for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            p = self.fma(p, r, f32(coefficient))
        y = self.add(self.fma(p, self.mul(r, r), r), f32(1.0))
        return self.mul(y, (call("fptosi", n) + 127) * (1 << 23))


class Reals:
    """Real numbers; exp is a function of which `facts` says what is used."""

    def __init__(self) -> None:
        self.function = z3.Function("E", z3.RealSort(), z3.RealSort())

    def add(self, a: Term, b: Term) -> Term:
        return a + b

    def sub(self, a: Term, b: Term) -> Term:
        return a - b

    def mul(self, a: Term, b: Term) -> Term:
        return a * b

    def fma(self, a: Term, b: Term, c: Term) -> Term:
        return a * b + c

    def maximum(self, a: Term, b: Term) -> Term:
        return z3.If(a > b, a, b)

    def exp(self, x: Term) -> Term:
        return self.function(x)

    def facts(self, x: Term, y: Term) -> Term:
        """E(x - y) * E(y) = E(x), and all three are positive."""
        e = self.function
        return z3.And(e(x - y) * e(y) == e(x), e(x - y) > 0, e(y) > 0, e(x) > 0)


@dataclass(frozen=True, slots=True)
class State:
    """What a part, or all parts so far, leave: the largest score, the sum of weights, one column of weighted values."""

    top: Term
    total: Term
    out: Term


Merge: TypeAlias = Callable[[Arithmetic, State, State], State]


def merge(a: Arithmetic, old: State, new: State) -> State:
    """N9: the parts so far and the next one."""
    top = a.maximum(old.top, new.top)
    keep, take = a.exp(a.sub(old.top, top)), a.exp(a.sub(new.top, top))
    total = a.fma(old.total, keep, a.mul(new.total, take))
    return State(top, total, a.fma(old.out, keep, a.mul(new.out, take)))


def prove_merge_is_softmax(rule: Merge = merge) -> Result:
    """The invariant above is kept by a merge; `rule`: another one (a mutant)."""
    a = Reals()
    old, new = (State(*(z3.Real(f"{name}{field}") for field in ("top", "total", "out"))) for name in ("old", "new"))
    made = rule(a, old, new)
    weights, values, more, more_values = z3.Reals("weights values more more_values")
    e = a.function
    known = z3.And(old.total * e(old.top) == weights, old.out * e(old.top) == values, old.total >= 1,
                   new.total * e(new.top) == more, new.out * e(new.top) == more_values, new.total >= 1)  # fmt: skip
    top = a.maximum(old.top, new.top)
    facts = (a.facts(old.top, top), a.facts(new.top, top), e(z3.RealVal(0)) == 1)
    claims = {
        "the sum of weights": made.total * e(made.top) == weights + more,
        "the weighted values": made.out * e(made.top) == values + more_values,
        "the largest score": z3.And(made.top >= old.top, made.top >= new.top),
        "a sum of at least 1": made.total >= 1,
    }
    return named({name: decide(claim, known, *facts) for name, claim in claims.items()})


def prove_part_is_softmax() -> Result:
    """A part: with m the largest score, adding exp(s - m) to l and exp(s - m) * v to o for one more key keeps
    l * E(m) = sum of E(s) and o * E(m) = sum of E(s) * v; and the key that has s = m adds 1."""
    a = Reals()
    m, s, v, l_so_far, o_so_far, weights, values = z3.Reals("m s v l o weights values")
    e = a.function
    known = (l_so_far * e(m) == weights, o_so_far * e(m) == values, a.facts(s, m), e(z3.RealVal(0)) == 1)
    weight = a.exp(a.sub(s, m))
    claims = {
        "the sum of weights": a.add(l_so_far, weight) * e(m) == weights + e(s),
        "the weighted values": a.fma(weight, v, o_so_far) * e(m) == values + e(s) * v,
        "the largest score": z3.Implies(s == m, weight == 1),
        "no weight is negative": weight > 0,
    }
    return named({name: decide(claim, *known) for name, claim in claims.items()})


class _StateWorld:
    """States as they are before the merge."""

    variable_range = (0, 0)
    has_data = True

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        return machine.named_leaf(pointer, kind) if kind == "float" else lanes.word(machine.named_leaf(pointer, kind))

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        pass

    def enter(self, machine: Machine, name: str, arguments: object) -> bool:
        return False


def prove_emitted_merge(shape: Attention, text: str | None = None) -> Result:
    """The emitted merge of states is `merge`, for every head, column and lane. text: another text (a mutant)."""
    module = Module("")
    name = merge_function(module, shape)
    machine = Machine(functions(text or module.text()), _StateWorld())
    machine.run(name, Pointer("state", Affine()), Pointer("next", Affine()))
    loops = [loop for loop in machine.loops if loop.symbol.low <= loop.symbol.high]
    if len(loops) != shape.group:
        return Result(Status.REFUTED, f"{len(loops)} loops over columns for {shape.group} heads")
    return all_of(result for head, loop in enumerate(loops) for result in _head(machine, shape, head, loop))


def merges_in(text: str) -> dict[str, tuple[int, int]]:
    """The merges of a step's text by name: query heads of a KV head, and their size."""
    return {name: (int(group), int(dim)) for name, group, dim in _MERGE.findall(text)}


def _head(machine: Machine, shape: Attention, head: int, loop: Loop) -> Iterator[Result]:
    dim, group = shape.layout.head_dim, shape.group
    if not loop.covers(dim, ROW_GROUP) or dim % ROW_GROUP:
        yield Result(Status.REFUTED, f"head {head}: columns {loop.index} of {loop.begin}..{loop.end}")
    top_at, total_at = Affine(4 * (group * dim + head)), Affine(4 * (group * (dim + 1) + head))
    made = machine.memory["state"]
    for lane in range(ROW_GROUP):
        out_at = (loop.index + head * dim) * 4
        old, new = (
            State(*(machine.named_leaf(Pointer(name, at), "float") for at in (top_at, total_at, out_at + 4 * lane)))
            for name in ("state", "next")
        )
        wanted, column = merge(Floats(), old, new), made[out_at].value
        assert isinstance(column, Vector), column
        if lane == 0:
            yield same(made[top_at].value, wanted.top)
            yield same(made[total_at].value, wanted.total)
        yield same(column[lane], wanted.out)
