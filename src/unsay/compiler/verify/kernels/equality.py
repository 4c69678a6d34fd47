"""Whether two terms are equal for all values of their constants: by normal form, a search for a difference, or Z3.

Z3's normal form (sums of products, bits of bytes) settles what is right. What is wrong differs almost everywhere, so a
few random values find it sooner than a solver: every constant becomes a number, and every operation on floats a
function that gives random but always the same results. Z3 decides the rest.
"""

from __future__ import annotations

import random

from unsay.compiler.verify.kernels.state import constants
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.smt import Term, decide, z3

_TRIES = 6
_SHOWN = 6


def same(left: Term, right: Term, least: int = -127) -> Result:
    """Proved, or refuted with values; bytes are tried from `least` to 127, the extremes often."""
    left, right = (z3.simplify(term, som=True) for term in (left, right))
    if left.eq(right):
        return Result(Status.PROVED)
    unknowns = {str(constant): constant for term in (left, right) for constant in constants(term)}
    chance = random.Random(len(unknowns))
    for attempt in range(_TRIES):
        extreme = attempt % 2 == 1
        values = {name: _value(chance, constant, least, extreme) for name, constant in sorted(unknowns.items())}
        pairs = [(unknowns[name], value) for name, value in values.items()]
        made = [_valued(z3.substitute(term, *pairs)) for term in (left, right)]
        if not made[0].eq(made[1]):
            return Result(Status.REFUTED, _shown(values, made))
    return decide(left == right)


def _valued(term: Term) -> Term:
    """The number a term without constants is, its functions interpreted at random, innermost first."""
    term = z3.simplify(term)
    while ready := _ready(term):
        term = z3.simplify(z3.substitute(term, *((call, _result(call)) for call in ready)))
    return term


def _ready(term: Term) -> list[Term]:
    """Calls of functions with numbers for arguments."""
    found: list[Term] = []
    seen: set[int] = set()
    stack = [term]
    while stack:
        at = stack.pop()
        if at.get_id() in seen:
            continue
        seen.add(at.get_id())
        arguments = at.children()
        if arguments and at.decl().kind() == z3.Z3_OP_UNINTERPRETED and all(map(z3.is_bv_value, arguments)):
            found.append(at)
        stack.extend(arguments)
    return found


def _result(call: Term) -> Term:
    chance = random.Random(call.sexpr())
    return z3.BoolVal(chance.random() < 0.5) if z3.is_bool(call) else z3.BitVecVal(chance.getrandbits(32), call.size())


def _value(chance: random.Random, constant: Term, least: int, extreme: bool) -> Term:
    if z3.is_bool(constant):
        return z3.BoolVal(chance.random() < 0.5)
    size = constant.size()
    if size == 8:
        return z3.BitVecVal(chance.choice((least, -1, 0, 1, 127)) if extreme else chance.randint(least, 127), size)
    return z3.BitVecVal(chance.getrandbits(size), size)


def _shown(values: dict[str, Term], made: list[Term]) -> str:
    some = ", ".join(f"{name} = {value}" for name, value in list(values.items())[:_SHOWN])
    more = ", ..." if len(values) > _SHOWN else ""
    return f"{some}{more}: {made[0]} is not {made[1]}"
