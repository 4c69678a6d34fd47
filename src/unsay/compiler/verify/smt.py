"""Z3: the only module that imports it, and only a compilation or a proof imports this one.

Its Python face is not typed, so terms are `Term` here. A Z3 answer of `unknown` is never taken for yes: see `decide`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import z3 as _z3

from unsay.compiler.verify.obligation import Result, Status

Term: TypeAlias = Any
"""A Z3 expression."""

z3: Any = _z3
"""The library."""

RESOURCES = 7_000_000
"""What a question may use in Z3's own units: ten times the most that one needs (a small scope's equality: 0.7 million,
in 0.1 s). No time, so what is proved does not depend on what else the machine does."""

_LAST_GUARD_MS = 600_000
"""Wall clock, should Z3 ever not count."""


def limited(solver: Term) -> Term:
    """The solver, which answers `unknown` where a question needs more, and no longer where a Ctrl-C comes: Z3 takes
    that for itself while it thinks, in whatever thread, and Python never sees it."""
    solver.set(rlimit=RESOURCES, timeout=_LAST_GUARD_MS, ctrl_c=False)
    return solver


def decide(claim: Term, *assumptions: Term) -> Result:
    """Whether the assumptions imply the claim; the values of a counterexample if not, Z3's reason if it cannot say."""
    solver = limited(z3.Solver())
    solver.add(*assumptions, z3.Not(claim))
    answer = solver.check()
    if answer == z3.unsat:
        return Result(Status.PROVED)
    if answer == z3.sat:
        return Result(Status.REFUTED, counterexample(solver.model()))
    return Result(Status.UNKNOWN, solver.reason_unknown())


def counterexample(model: Term, limit: int = 8) -> str:
    """The constants of a model, `name = value`, in order of name; at most `limit` of them."""
    names = sorted(str(name) for name in model.decls() if name.arity() == 0)
    values = {str(name): model[name] for name in model.decls() if name.arity() == 0}
    shown = [f"{name} = {values[name]}" for name in names[:limit]]
    return ", ".join(shown + ["..."] * (len(names) > limit))
