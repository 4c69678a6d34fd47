"""Whether two terms are equal for all values of their constants: by normal form, a search for a difference, or Z3.

Z3's normal form (sums of products, bits of bytes) settles what is right. What is wrong differs almost everywhere, so a
few random values find it sooner than a solver: with every constant a number, floats are operations applied to
numbers, and two of those that are not the same may differ. Z3 decides the rest.
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
        made = [z3.simplify(z3.substitute(term, *pairs)) for term in (left, right)]
        if not made[0].eq(made[1]):
            return Result(Status.REFUTED, _shown(values, made))
    return decide(left == right, timeout_ms=5000)


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
    texts = [" ".join(term.sexpr().split())[:120] for term in made]
    return f"{some}{more}: {texts[0]} is not {texts[1]}"
