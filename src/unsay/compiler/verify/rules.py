"""The axioms of passes as obligations: T2, every small size over Z3 reals, and T3, real sizes mod 65521."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from unsay.compiler.verify import identity, small_scope
from unsay.compiler.verify.axioms import AXIOMS, BY_PASS, Axiom, axioms_of
from unsay.compiler.verify.obligation import Obligation
from unsay.compiler.verify.scopes import T3_EXEMPT
from unsay.errors import RequestError


def obligations(passes: Iterable[str] | None = None) -> list[Obligation]:
    """Those of the axioms these passes may use, of all if none are named; definitions have nothing to prove.

    Raises RequestError for a pass that has no axioms.
    """
    if passes is None:
        return _of(AXIOMS)
    wanted: dict[str, Axiom] = {}
    for name in passes:
        if name not in BY_PASS:
            raise RequestError(f"pass {name!r} relies on no axiom; these do: {', '.join(BY_PASS)}")
        wanted |= {axiom.name: axiom for axiom in axioms_of(name)}
    return _of(wanted.values())


def _of(axioms: Iterable[Axiom]) -> list[Obligation]:
    found: list[Obligation] = []
    for axiom in axioms:
        if axiom.keeps != "nothing":
            found.append(Obligation(axiom.name, "T2", "every small size, reals", partial(small_scope.prove, axiom)))
        if axiom.keeps != "nothing" and axiom.name not in T3_EXEMPT:
            found.append(Obligation(axiom.name, "T3", "identity mod 65521", partial(identity.check_axiom, axiom)))
    return found
