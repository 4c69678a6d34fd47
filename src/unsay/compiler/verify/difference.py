"""Where two graphs part: the first value of one name whose normal forms differ, shown as IR.

before: %t7 = silu(%t2) : tensor<T x 32 x f32>          what both have in common is named and not shown
        %t8 = mul(%t7, %t3) : tensor<T x 32 x f32>
after:  %t9 = mul(%t2, %t3) : tensor<T x 32 x f32>
"""

from __future__ import annotations

from collections.abc import Mapping

from unsay.compiler.ir.printer import print_attribute
from unsay.compiler.verify.terms import Term, reachable

_MAX_LINES = 12


def first_difference(before: Mapping[str, Term], after: Mapping[str, Term]) -> tuple[str, Term, Term] | None:
    """Name and terms of the value that differs and is made of the fewest terms."""
    names = [name for name in before.keys() & after.keys() if before[name] is not after[name]]
    if not names:
        return None
    name = min(names, key=lambda name: (max(before[name].number, after[name].number), name))
    return name, before[name], after[name]


def describe_difference(name: str, before: Term, after: Term) -> str:
    """Both sides as IR, down to what they have in common."""
    mine, theirs = reachable([before]), reachable([after])
    common = {term.number for term in mine} & {term.number for term in theirs}
    return f"%{name}\n  before:\n{_text(mine, common)}\n  after:\n{_text(theirs, common)}"


def _text(terms: list[Term], common: set[int]) -> str:
    lines = [f"    {print_term(term)}" for term in terms if term.number not in common]
    hidden = len(lines) - _MAX_LINES
    shown = [f"    ... {hidden} more"] * (hidden > 0) + lines[-_MAX_LINES:]
    return "\n".join(shown) or f"    %t{terms[-1].number}"


def print_term(term: Term) -> str:
    """One term as an operation of the IR."""
    attributes = ", ".join(f"{name} = {print_attribute(value)}" for name, value in sorted(term.attributes.items()))
    braces = f" {{{attributes}}}" if attributes else ""
    result = f" #{term.index}" if term.index else ""
    return f"%t{term.number} = {term.kind}{result}({', '.join(map(_name, term.operands))}){braces} : {term.type}"


def _name(term: Term) -> str:
    tensor = term.attributes.get("tensor") or term.attributes.get("name")
    return f"%{tensor}" if isinstance(tensor, str) else f"%t{term.number}"
