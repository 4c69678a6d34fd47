"""Normal forms of terms, and the instances of equations that lead to them.

Operands first; then, while an equation's left side fits, its right side. Which equations fit is decided by the shape of
the terms alone, never by what a pass claims to have done. An instance is true wherever its equation is, so nothing
here has to be believed: Z3 decides from the instances (congruence.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unsay.compiler.ir.types import Dim
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.equations import Builder
from unsay.compiler.verify.terms import Term, Terms, reachable
from unsay.errors import IrError

_MAX_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Instance:
    """An axiom with terms put in for its names."""

    axiom: Axiom
    left: Term
    right: Term


class Rewriter:
    """Normal forms by some axioms, remembered, and the instances they took."""

    def __init__(self, terms: Terms, dims: Mapping[str, Dim], axioms: Sequence[Axiom]) -> None:
        self.instances: list[Instance] = []
        self._terms = terms
        self._builder = Builder(terms, dims)
        self._normal: dict[int, Term] = {}
        self._axioms: dict[str, list[Axiom]] = {}
        for axiom in axioms:
            for kind in axiom.rule.kinds:
                self._axioms.setdefault(kind, []).append(axiom)

    def normal(self, term: Term) -> Term:
        """The term when no equation fits any part of it."""
        if not self._axioms:
            return term
        if term.number not in self._normal:
            for part in reachable([term], self._normal):
                self._normal[part.number] = self._rewrite(part)
        return self._normal[term.number]

    def _rewrite(self, term: Term) -> Term:
        """The normal form of a term whose operands have theirs."""
        normal = self._normal
        operands = [normal[operand.number] for operand in term.operands]
        if operands != [*term.operands]:
            term = self._terms.rebuild(term, operands)
            if term.number in normal:
                return normal[term.number]
        instance = self._step(term) if term.kind in self._axioms else None
        if instance is None:
            self._normal[term.number] = term
            return term
        self.instances.append(instance)
        assert len(self.instances) < _MAX_STEPS * len(self._terms.all), f"{instance.axiom.name} never stops applying"
        return self.normal(instance.right)

    def _step(self, term: Term) -> Instance | None:
        for axiom in self._axioms[term.kind]:
            try:
                right = axiom.rule.apply(self._builder, term)
            except IrError:
                continue  # not well typed for these operands
            if right is not None and right is not term and right.type == term.type:
                return Instance(axiom, term, right)
        return None
