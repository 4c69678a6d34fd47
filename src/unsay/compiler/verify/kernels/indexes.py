"""The arithmetic of i64: exact, with an obligation wherever an expression of the text might not be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.text import KernelTextError
from unsay.compiler.verify.kernels.values import OPAQUE, Opaque, Value
from unsay.compiler.verify.obligation import NotProvedError, Result, Status
from unsay.compiler.verify.smt import Term, z3

if TYPE_CHECKING:
    from unsay.compiler.verify.kernels.machine import Machine

_LARGEST = (1 << 63) - 1


def binary(machine: Machine, op: str, left: Value, right: Value) -> Value:
    """add, sub, mul, udiv, urem; raises NotProvedError where a result may not fit, or a divisor may be 0."""
    if isinstance(left, Opaque) or isinstance(right, Opaque):
        return OPAQUE
    assert isinstance(left, Affine) and isinstance(right, Affine), (op, left, right)
    made = _exact(machine, op, left, right)
    if not -_LARGEST <= made.low <= made.high <= _LARGEST:
        raise NotProvedError(Result(Status.UNKNOWN, f"it may be {made.low}..{made.high}"), f"{op} {left}, {right}")
    return made


def _exact(machine: Machine, op: str, left: Affine, right: Affine) -> Affine:
    match op:
        case "add":
            return left + right
        case "sub":
            return _multiple(machine, left, right) or left - right
        case "mul":
            return product(machine, left, right)
        case "udiv":
            return quotient(machine, left, right)
        case "urem":
            return remainder(machine, left, right)
        case _:
            raise KernelTextError(f"{op} of i64")


def product(machine: Machine, left: Affine, right: Affine) -> Affine:
    """left * right; a new symbol where both are unknown, the same for the same factors."""
    if left.is_constant or right.is_constant:
        return right * left.constant if left.is_constant else left * right.constant
    for symbol, factors in machine.products.items():
        if factors == (left, right):
            return of(symbol)
    ends = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
    symbol = machine.symbol("product", min(ends), max(ends))
    machine.products[symbol] = (left, right)
    machine.define(of(symbol).term() == left.term() * right.term())
    return of(symbol)


def quotient(machine: Machine, left: Affine, right: Affine) -> Affine:
    """left // right; a share `units * part // parts` is at most all units (`share_lemma` in bounds.py)."""
    if right.is_constant and (parts := _split(left, right.constant)):
        return parts[0]
    if (left, right) not in machine.quotients:
        machine.quotients[left, right] = _new_quotient(machine, left, right)
    return machine.quotients[left, right]


def remainder(machine: Machine, left: Affine, right: Affine) -> Affine:
    """left % right, the same for the same operands."""
    if right.is_constant and (parts := _split(left, right.constant)):
        return parts[1]
    if (left, right) not in machine.remainders:
        rest = left - product(machine, quotient(machine, left, right), right)
        made = of(machine.symbol("remainder", 0, max(0, right.high - 1)))
        known = z3.And(left.term() >= 0, right.term() >= 1)
        machine.define(z3.Implies(known, made.term() == rest.term()))
        machine.remainders[left, right] = made
    return machine.remainders[left, right]


def _split(left: Affine, divisor: int) -> tuple[Affine, Affine] | None:
    """left // divisor and left % divisor where its terms show them, as 32 * i + 5 shows i and 5 of 32."""
    if divisor < 1 or left.low < 0:
        return None
    whole, rest = Affine(left.constant // divisor), Affine(left.constant % divisor)
    for symbol, factor in left.terms:
        if factor % divisor:
            rest = rest + of(symbol) * factor
        else:
            whole = whole + of(symbol) * (factor // divisor)
    return (whole, rest) if rest.low >= 0 and rest.high < divisor else None


def _multiple(machine: Machine, left: Affine, right: Affine) -> Affine | None:
    """(left // n) * n where `right` is left % n."""
    for (whole, divisor), rest in machine.remainders.items():
        if rest == right and whole == left:
            return product(machine, quotient(machine, whole, divisor), divisor)
    return None


def _new_quotient(machine: Machine, left: Affine, right: Affine) -> Affine:
    _must(machine, right.low >= 1, right.term() >= 1, f"{left} // {right}: a divisor that is not 0")
    _must(machine, left.low >= 0, left.term() >= 0, f"{left} // {right}: a dividend that is not negative")
    units = None if right.is_constant else _units(machine, left, right)
    high = max(0, left.high) // max(1, right.low) if units is None else units.high
    made = of(machine.symbol("quotient", 0, high))
    if units is not None:
        machine.define(made.term() <= units.term())
        return made
    whole = product(machine, made, right)
    exact = z3.And(whole.term() <= left.term(), left.term() < whole.term() + right.term())
    known = z3.And(left.term() >= 0, right.term() >= 1)
    machine.define(z3.Implies(known, exact))
    return made


def _must(machine: Machine, is_plain: bool, claim: Term, what: str) -> None:
    """Raise NotProvedError unless a condition is plain from bounds, or implied by the facts."""
    result = Result(Status.PROVED) if is_plain else machine.implied(claim)
    if result.status is not Status.PROVED:
        raise NotProvedError(result, what)


def _units(machine: Machine, left: Affine, right: Affine) -> Affine | None:
    """u where left = u * part with 0 <= part <= right."""
    if len(left.terms) != 1:
        return None
    ((symbol, factor),) = left.terms
    pair = machine.products.get(symbol) if factor == 1 and not left.constant else None
    if pair is None and left.constant % factor:
        return None
    units, part = pair or (Affine(factor), Affine(left.constant // factor) + of(symbol))
    fits = machine.implied(z3.And(part.term() >= 0, part.term() <= right.term(), units.term() >= 0))
    return units if fits.status is Status.PROVED else None


def choice(machine: Machine, condition: Value, yes: Affine, no: Affine) -> Affine:
    """One of two indexes; of `yes < no` the smaller."""
    is_smaller = not isinstance(condition, Opaque) and z3.eq(condition, yes.term() < no.term())
    highest = min(yes.high, no.high) if is_smaller else max(yes.high, no.high)
    made = of(machine.symbol("chosen", min(yes.low, no.low), highest))
    same = made.term() == yes.term(), made.term() == no.term()
    machine.define(z3.Or(*same) if isinstance(condition, Opaque) else z3.If(condition, *same))
    return made
