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

TIMEOUT_MS = 20_000


def decide(claim: Term, *assumptions: Term, timeout_ms: int = TIMEOUT_MS) -> Result:
    """Whether the assumptions imply the claim; the values of a counterexample if not, Z3's reason if it cannot say."""
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
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
