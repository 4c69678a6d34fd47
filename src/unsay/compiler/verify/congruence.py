"""Whether equations between terms follow from others: Z3 in QF_UF, one uninterpreted sort, a function for each symbol.

Z3's C functions are called directly: the Python objects around them take ten times as long, and a model has thousands
of terms, each handed over once. The simple solver is Z3's congruence closure without the preprocessing that SolverFor
adds, which takes longer here than all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.smt import limited, z3
from unsay.compiler.verify.terms import Term, reachable

Equality = tuple[Term, Term]


class Congruence:
    """Decides questions about the terms of one store; remembers what it has handed to Z3."""

    def __init__(self) -> None:
        self._context = z3.main_ctx()  # one of its own would take longer to free than everything else here
        self._sort = z3.DeclareSort("Tensor", self._context)
        self._functions: dict[tuple[int, int], Any] = {}
        self._handles: dict[int, Any] = {}

    def close(self) -> None:
        """Give back the terms handed to Z3, which otherwise stay there until the process ends."""
        for handle in self._handles.values():
            z3.z3core.Z3_dec_ref(self._context.ref(), handle)
        self._handles.clear()

    def decide(self, goals: Sequence[Equality], given: Sequence[Equality]) -> Result:
        """Whether all goals follow from the equalities given. Refuted means that they do not follow."""
        solver = limited(z3.SimpleSolver(self._context))
        self._hand_over([term for equality in (*goals, *given) for term in equality])
        for left, right in given:
            solver.add(self._equal(left, right))
        solver.add(self._some_differ(goals))
        answer = solver.check()
        if answer == z3.unsat:
            return Result(Status.PROVED)
        return Result(Status.REFUTED) if answer == z3.sat else Result(Status.UNKNOWN, solver.reason_unknown())

    def _hand_over(self, roots: Sequence[Term]) -> None:
        """Make Z3's term of each; operands come first."""
        core, context = z3.z3core, self._context.ref()
        for term in reachable(roots, self._handles):
            count = len(term.operands)
            operands = (z3.Ast * count)(*[self._handles[operand.number] for operand in term.operands])
            handle = core.Z3_mk_app(context, self._function(term).ast, count, operands)
            core.Z3_inc_ref(context, handle)
            self._handles[term.number] = handle

    def _function(self, term: Term) -> Any:
        key = (term.symbol.number, len(term.operands))
        if key not in self._functions:
            sorts = [self._sort] * (len(term.operands) + 1)
            self._functions[key] = z3.Function(f"{term.kind}.{term.symbol.number}", *sorts)
        return self._functions[key]

    def _some_differ(self, goals: Sequence[Equality]) -> Any:
        """A function of all left sides is not that of all right sides: one inequality, where a choice takes longer."""
        sorts = [self._sort] * (len(goals) + 1)
        observer = z3.Function(f"observations.{len(goals)}", *sorts)
        sides = zip(*[(self._expression(left), self._expression(right)) for left, right in goals], strict=True)
        left, right = (observer(*side) for side in sides)
        return left != right

    def _expression(self, term: Term) -> Any:
        return z3.ExprRef(self._handles[term.number], self._context)

    def _equal(self, left: Term, right: Term) -> Any:
        handles = self._handles
        return z3.BoolRef(
            z3.z3core.Z3_mk_eq(self._context.ref(), handles[left.number], handles[right.number]), self._context
        )
