"""Wrong axioms: an equation whose right side is changed in one place.

Operands are swapped, an operation is dropped, one name stands where another should, an attribute or a result is
another. Operands of commutative operations are not swapped: that would be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import CodeType

from tests.mutants.graph_mutants import COMMUTATIVE, others
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.patterns import Apply, Name, Pattern


@dataclass(frozen=True, slots=True)
class WrongRight:
    """What a right side is changed to, and how."""

    name: str
    right: Pattern


def wrong_rights(axiom: Axiom) -> Iterator[WrongRight]:
    """Every change in one place."""
    names = sorted({name.name for name in _names(axiom.equation.left) if not name.starred})
    yield from _changed(axiom.equation.right, names)


def _changed(pattern: Pattern, names: list[str]) -> Iterator[WrongRight]:
    if isinstance(pattern, Name):
        for other in names if not pattern.starred else ():
            if other != pattern.name:
                yield WrongRight(f"{other} for {pattern.name}", Name(other))
        return
    yield from _changed_here(pattern)
    for place, operand in enumerate(pattern.operands):
        for wrong in _changed(operand, names):
            operands = (*pattern.operands[:place], wrong.right, *pattern.operands[place + 1 :])
            yield WrongRight(f"{pattern.kind}: {wrong.name}", replace(pattern, operands=operands))


def _changed_here(pattern: Apply) -> Iterator[WrongRight]:
    operands = pattern.operands
    for place, operand in enumerate(operands):
        if not (isinstance(operand, Name) and operand.starred):
            yield WrongRight(f"{pattern.kind} dropped for operand {place}", operand)
    if pattern.kind not in COMMUTATIVE:
        for i in range(len(operands)):
            for j in range(i + 1, len(operands)):
                order = list(operands)
                order[i], order[j] = order[j], order[i]
                if not any(isinstance(operand, Name) and operand.starred for operand in (order[i], order[j])):
                    yield WrongRight(f"{pattern.kind}: {i} and {j} swapped", replace(pattern, operands=tuple(order)))
    for place, (name, value) in enumerate(pattern.attributes):
        for other in [] if isinstance(value, Name | CodeType) else others(value):
            attributes = (*pattern.attributes[:place], (name, other), *pattern.attributes[place + 1 :])
            yield WrongRight(f"{pattern.kind} with {name} = {other!r}", replace(pattern, attributes=attributes))


def _names(pattern: Pattern) -> Iterator[Name]:
    if isinstance(pattern, Name):
        yield pattern
        return
    for operand in pattern.operands:
        yield from _names(operand)
