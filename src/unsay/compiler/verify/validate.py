"""T1: after each pass, the graph still computes what it did, on the graph at hand.

Both graphs are read as terms (terms.py). The pass's axioms are instantiated wherever their left side is found in
either, and Z3 decides in QF_UF whether every observation of one equals that of the other. The sizes of tensors are in
no term, so a proof holds for all. Anything but a proof rejects the pass by its name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from unsay.compiler.ir.core import Graph
from unsay.compiler.passes.pipeline import After, Pass, run_passes
from unsay.compiler.verify.axioms import WEAKER, Axiom, Keeps, axioms_of
from unsay.compiler.verify.difference import describe_difference, first_difference
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.rewrite import Instance, Rewriter
from unsay.compiler.verify.sizes import at_size, changed_promise, wanted_size
from unsay.compiler.verify.spec import Level
from unsay.compiler.verify.terms import Meaning, Term, Terms, meaning
from unsay.errors import PassError

if TYPE_CHECKING:
    from unsay.compiler.verify.congruence import Congruence


@dataclass(frozen=True, slots=True)
class PassProof:
    """What was found out about one run of a pass.

    method: "same terms" where reading both graphs gave the same terms, "nothing is seen" where they have no output and
    no cache, else "QF_UF". keeps: the weakest of the axioms
    used, in how many instances. detail: the counterexample, or why there is no answer.
    """

    name: str
    status: str
    method: str
    keeps: Keeps
    axioms: tuple[str, ...]
    instances: int
    seconds: float
    detail: str = ""


def proofs_to_json(proofs: Sequence[PassProof]) -> str:
    """Text of verified.json: without the times, so that an image made again is the same."""
    rows = [{name: value for name, value in asdict(proof).items() if name != "seconds"} for proof in proofs]
    return json.dumps(rows, indent=1) + "\n"


def run_validated(graph: Graph, passes: Sequence[Pass], after: After | None = None) -> list[PassProof]:
    """Run passes on a graph, each proved on it; `after` is called once a pass has been. Raises as run_passes, and
    PassError for a pass that is not proved."""
    validator = Validator(graph, next((step.entry for step in passes if step.entry), Level.TENSOR))

    def prove(step: Pass, graph: Graph, count: int) -> None:
        validator.after_pass(step, graph, count)
        if after is not None:
            after(step, graph, count)

    try:
        run_passes(graph, passes, prove)
    finally:
        validator.close()
    return validator.proofs


class Validator:
    """Proves the passes that run on one graph, one after the other."""

    def __init__(self, graph: Graph, level: Level) -> None:
        """Reads the graph, which is of this level, as it is before any pass."""
        self.proofs: list[PassProof] = []
        self._terms = Terms()
        self._solver: Congruence | None = None
        self._level = level
        self._before = meaning(self._terms, graph, level)
        self._wanted = wanted_size(graph)

    def close(self) -> None:
        """Free what Z3 holds; no pass can be proved afterwards."""
        if self._solver is not None:
            self._solver.close()

    def after_pass(self, step: Pass, graph: Graph, _count: int) -> None:
        """Prove that the graph means what it did; raises PassError naming the pass, with a counterexample."""
        start = time.perf_counter()
        self._level = step.exit or self._level
        after = meaning(self._terms, graph, self._level)
        before = self._at_size_of(graph)
        comparison = _Comparison(self._terms, graph, axioms_of(step.name), before, after)
        promise = changed_promise(self._wanted, graph)
        result = Result(Status.REFUTED, promise) if promise else self._decide(comparison)
        self.proofs.append(comparison.proof(step.name, result, time.perf_counter() - start))
        if result.status is not Status.PROVED:
            raise PassError(f"{step.name} is {result.status.value}: {result.detail}")
        self._before, self._wanted = after, wanted_size(graph)

    def _at_size_of(self, graph: Graph) -> Meaning:
        """What is to be equal to the graph: the one before, at the size that was wanted if its dimension is gone."""
        seen, values = self._before.observations, self._before.values
        if not self._wanted.is_met(graph):
            return self._before
        fixed = at_size(self._terms, [*seen.values(), *values.values()], self._wanted)
        return Meaning(*({name: fixed[term.number] for name, term in part.items()} for part in (seen, values)))

    def _decide(self, comparison: _Comparison) -> Result:
        if comparison.missing:
            return Result(Status.REFUTED, f"{comparison.missing} is in only one of the graphs")
        if not comparison.goals:
            return Result(Status.PROVED)
        if self._solver is None:
            from unsay.compiler.verify.congruence import Congruence

            self._solver = Congruence()
        result = self._solver.decide(comparison.goals, [(step.left, step.right) for step in comparison.instances])
        return result if result.status is Status.PROVED else Result(result.status, comparison.difference(result.detail))


class _Comparison:
    """Two meanings, and what may be assumed to show them equal."""

    def __init__(self, terms: Terms, graph: Graph, axioms: Sequence[Axiom], before: Meaning, after: Meaning) -> None:
        definitions = [axiom for axiom in axioms if axiom.keeps == "nothing"]
        self._defined = Rewriter(terms, graph.dims, definitions)
        self._equal = Rewriter(terms, graph.dims, [axiom for axiom in axioms if axiom.keeps != "nothing"])
        self._graph = graph
        self._before = before
        self._after = after
        self.missing = ", ".join(sorted(before.observations.keys() ^ after.observations.keys()))
        names = before.observations.keys() & after.observations.keys()
        pairs = [(self._defined.normal(before.observations[name]), after.observations[name]) for name in sorted(names)]
        self.goals: list[tuple[Term, Term]] = [(left, right) for left, right in pairs if left is not right]
        for left, right in self.goals:
            self._equal.normal(left)
            self._equal.normal(right)

    @property
    def instances(self) -> list[Instance]:
        """Of equations; those of definitions have been put in already."""
        return self._equal.instances

    def proof(self, name: str, result: Result, seconds: float) -> PassProof:
        """The record of this comparison."""
        used = [*self._defined.instances, *self._equal.instances]
        axioms = {step.axiom.name: step.axiom for step in used}
        kept = {WEAKER.index(step.axiom.keeps_of(step.left.type.dtype)) for step in used}
        keeps = WEAKER[max(kept, default=0)]
        method = "QF_UF" if self.goals else "same terms" if self._after.observations else "nothing is seen"
        return PassProof(
            name, result.status.value, method, keeps, tuple(axioms), len(used), round(seconds, 4), result.detail
        )

    def difference(self, reason: str) -> str:
        """The solver's reason, if it gave one, and where the graphs part, as IR and in values."""
        found = first_difference(self._normals(self._before, defined=True), self._normals(self._after, defined=False))
        if found is None:
            return reason
        from unsay.compiler.verify.counterexample import differing_values

        _, before, after = found
        values = differing_values(before, after, self._graph.dims, self._graph.constraints)
        return f"{reason} {describe_difference(*found)}\n  {values}".strip()

    def _normals(self, seen: Meaning, defined: bool) -> dict[str, Term]:
        values = {**seen.values, **seen.observations}
        if defined:
            values = {name: self._defined.normal(term) for name, term in values.items()}
        return {name: self._equal.normal(term) for name, term in values.items()}
