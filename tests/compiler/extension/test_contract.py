"""The contract of extensions: what keeps it is used, what breaks it is told, and a fallback stands in."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.compiler.extension import acme
from unsay.compiler.dialect.domains import FIELD
from unsay.compiler.dialect.ops import BY_NAME, OPS
from unsay.compiler.dialect.semantics import SEMANTICS
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.extension import BASELINE, Extension, Rule, Version, expand, install, load, problems_of
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.passes.cse import cse
from unsay.compiler.passes.dce import dce
from unsay.compiler.passes.pipeline import Pass, find_passes, run_passes
from unsay.compiler.verify.axioms import BY_NAME as AXIOMS
from unsay.compiler.verify.axioms import Axiom
from unsay.compiler.verify.scopes import SCOPES, Scope
from unsay.compiler.verify.spec import Level
from unsay.compiler.verify.validate import Validator, run_validated
from unsay.errors import ExtensionError, IrError, RequestError

_OP, _PASS = acme.EXTENSION.ops[0], acme.EXTENSION.passes[0]
_X = np.linspace(-5, 5, 16, dtype=np.float32).reshape(2, 8)
_HARD_SWISH = _X * np.clip(_X + 3, 0, 6)


def _tables() -> list[set[str]]:
    return [set(table) for table in (BY_NAME, SEMANTICS, AXIOMS, SCOPES)]


def test_what_keeps_the_contract_works_like_what_is_built_in():
    before = _tables()
    installed = install(acme.EXTENSION)
    try:
        assert installed.replaced == {}
        graph = parse(acme.EXAMPLE)
        verify(graph)
        np.testing.assert_allclose(evaluate(graph, {"x": _X}, {})[0], _HARD_SWISH, rtol=1e-6)
        case = parse(acme.CASE)
        validator = Validator(case, Level.TENSOR)
        run_passes(case, find_passes(["acme_fuse_relu", "dce"]), validator.after_pass)
        assert [operation.kind for operation in case.operations] == ["input", "relu", "output"]
        assert [proof.axioms for proof in validator.proofs] == [("acme.relu-again",), ()]
    finally:
        installed.remove()
    assert _tables() == before
    with pytest.raises(IrError, match="no such operation"):
        verify(parse(acme.EXAMPLE))


def test_its_operations_are_lowered_by_their_fallbacks():
    installed = install(acme.EXTENSION)
    try:
        graph = parse(acme.EXAMPLE)
        assert expand(graph, [installed]) == 1
        exact = evaluate(parse(acme.EXAMPLE), {"x": _X}, {}, FIELD)
    finally:
        installed.remove()
    verify(graph)
    assert np.array_equal(evaluate(graph, {"x": _X}, {}, FIELD), exact)


def _with_op(**changes: Any) -> Extension:
    return replace(acme.EXTENSION, ops=(replace(_OP, **changes),), passes=())


def _with_row(**changes: Any) -> Extension:
    return _with_op(row=replace(acme.ROW, **changes))


def _with_pass(**changes: Any) -> Extension:
    return replace(acme.EXTENSION, ops=(), passes=(replace(_PASS, **changes),))


def _with_run(run: Callable[[Graph], int], **changes: Any) -> Extension:
    run.__name__ = "acme_fuse_relu"
    return _with_pass(step=Pass(run), **changes)


def _careless_rule(types: Any, _attributes: Any, _dims: Any) -> Any:
    return (replace(types[0], dims=(*types[0].dims[:-1], types[0].dims[-1] * 1)),)


def _changes_its_operand(_d: Any, _op: Any, operands: Any) -> Any:
    operands[0][...] = 1
    return (operands[0],)


_COUNTER = itertools.count()


def _forgets_a_relu(graph: Graph) -> int:
    operation = graph.operations[1]
    if operation.kind != "relu":
        return 0
    graph.replace(operation.result, operation.operands[0])
    graph.erase(operation)
    return 1


_FALSE = Rule(Axiom("acme.relu-again", "maximum(x, relu(x)) == x"), (Scope("x: T K", {"T": 2, "K": 3}),))

_BREACHES: list[tuple[Extension, str, str]] = [
    (replace(acme.EXTENSION, baseline="2.0"), "acme_fuse_relu", r"made for baseline 2\.0, this is 1\."),
    (replace(acme.EXTENSION, baseline="1.99"), "acme_fuse_relu", r"made for baseline 1\.99, this is 1\."),
    (_with_row(name="relu"), "relu", "there is a relu already"),
    (_with_row(name="hard_swish"), "hard_swish", r"must begin with that of its extension, as in acme\.name"),
    (_with_row(family="step"), "acme.hard_swish", "must be of family tensor"),
    (_with_row(in_place=0), "acme.hard_swish", "neither fused nor in place"),
    (_with_row(doc=" "), "acme.hard_swish", "needs a doc"),
    (_with_row(rule=None), "acme.hard_swish", "needs a shape rule"),
    (_with_row(rule=_careless_rule), "acme.hard_swish", "has a rule for any operands: IndexError"),
    (_with_row(rule=lambda types, *_: (str(types[0]),)), "acme.hard_swish", "results are tensor<B x 8 x f32>, not"),
    (_with_row(value_invariants=("y >= 0",)), "acme.hard_swish", "y >= 0 is broken in the example swish"),
    (_with_row(value_invariants=("y == y",)), "acme.hard_swish", "y == y refuses nothing in the example swish"),
    (_with_row(value_invariants=("y >= z",)), "acme.hard_swish", "keeps its invariants: NameError"),
    (_with_op(examples=()), "acme.hard_swish", "needs an example"),
    (_with_op(examples=(acme.CASE,)), "acme.hard_swish", "the example twice does not have it"),
    (_with_op(examples=("graph g() {",)), "acme.hard_swish", "is at work in its examples: IrError: 1:12"),
    (_with_op(meaning=lambda d, _op, xs: (d.sum(xs[0], (0,)),)), "acme.hard_swish", "what it means has shapes"),
    (_with_op(meaning=lambda d, _op, xs: (d.add(xs[0], float(next(_COUNTER))),)), "acme.hard_swish", "the second time"),
    (_with_op(meaning=_changes_its_operand), "acme.hard_swish", "is a function: ValueError: assignment destination"),
    (_with_op(meaning=lambda d, _op, xs: (np.arctan(xs[0]),)), "acme.hard_swish", "its fallback gives something else"),
    (_with_op(fallback=lambda graph, op: [op.operands[0]]), "acme.hard_swish", "its fallback gives something else"),
    (_with_op(fallback=lambda graph, op: [graph.add("acme.hard_swish", op.operands, {}, [("y", op.result.type)],
                                                    before=op).result]),
     "acme.hard_swish", r"its fallback uses acme\.hard_swish"),
    (_with_pass(cases=()), "acme_fuse_relu", "needs a case"),
    (_with_pass(rules=()), "acme_fuse_relu", "is validated: PassError: acme_fuse_relu is refuted"),
    (_with_pass(rules=(_FALSE,)), "acme_fuse_relu", r"acme\.relu-again is refuted by T2"),
    (_with_pass(rules=(replace(_PASS.rules[0], scopes=()),)), "acme_fuse_relu", "has no scope to be proved at"),
    (_with_pass(rules=(replace(_PASS.rules[0], axiom=Axiom("acme.none", "relu(x) == maximum(x")),)),
     "acme_fuse_relu", "has proved equations: SyntaxError"),
    (_with_run(lambda graph: 0), "acme_fuse_relu", "it does not apply to the case twice"),
    (_with_run(lambda graph: 1), "acme_fuse_relu", "it still applies to the case twice after 8 runs"),
    (_with_run(_forgets_a_relu), "acme_fuse_relu", "changes the results of the case twice, over FloatDomain"),
    (_with_run(lambda graph: graph.operations[9]), "acme_fuse_relu", "applies to its cases: IndexError"),
]  # fmt: skip


@pytest.mark.parametrize(("extension", "name", "problem"), _BREACHES, ids=[breach[2] for breach in _BREACHES])
def test_a_breach_is_told(extension: Extension, name: str, problem: str):
    before = _tables()
    assert re.search(problem, "\n".join(problems_of(extension)[name]))
    assert _tables() == before


def test_what_breaks_the_contract_and_has_no_fallback_is_refused():
    before = _tables()
    extension = _with_op(examples=(), fallback=None)
    with pytest.raises(ExtensionError, match=r"extension acme cannot be used:\n  - acme\.hard_swish: it needs an"):
        install(extension)
    assert _tables() == before


def test_what_breaks_the_contract_is_replaced_by_its_fallback():
    extension = replace(
        acme.EXTENSION,
        baseline="2.0",
        ops=(replace(_OP, meaning=lambda _d, _op, operands: (operands[0],)),),
        passes=(replace(_PASS, fallback=Pass(dce)),),
    )
    installed = install(extension)
    try:
        assert {name: len(found) for name, found in installed.replaced.items()} == {
            "acme.hard_swish": 1,
            "acme_fuse_relu": 1,
        }
        np.testing.assert_allclose(evaluate(parse(acme.EXAMPLE), {"x": _X}, {})[0], _HARD_SWISH, rtol=1e-6)
        assert find_passes(["acme_fuse_relu"]) == [Pass(dce)]
    finally:
        installed.remove()


def _fuses_too_much(graph: Graph) -> int:
    """Right on graphs of one relu, wrong on those of two: nothing that the cases show."""
    if sum(operation.kind == "relu" for operation in graph.operations) == 1:
        return acme.acme_fuse_relu(graph)
    return _forgets_a_relu(graph)


def test_a_pass_that_is_not_proved_on_a_graph_gives_way_to_its_fallback():
    installed = install(_with_run(_fuses_too_much, fallback=Pass(cse)))
    try:
        case = parse(acme.CASE)
        run_validated(case, find_passes(["acme_fuse_relu"]))
        assert [operation.kind for operation in case.operations] == ["input", "relu", "relu", "output"]
        again = acme.CASE.replace("%y = max", "%s = relu(%x) : tensor<B x 8 x f32>\n  %y = max").replace("%r)", "%s)")
        graph = parse(again)
        (proof,) = run_validated(graph, find_passes(["acme_fuse_relu"]))
        assert proof.status == "proved"
        assert [operation.kind for operation in graph.operations] == ["input", "relu", "maximum", "output"]
    finally:
        installed.remove()


def test_a_fallback_that_is_no_graph_of_the_baseline_replaces_nothing():
    extension = replace(acme.EXTENSION, baseline="2.0", passes=(), ops=(replace(_OP, examples=()),))
    with pytest.raises(ExtensionError, match=r"acme\.hard_swish: it needs an example"):
        install(extension)


def test_an_extension_is_loaded_by_the_name_of_its_module():
    load("tests.compiler.extension.acme").remove()
    with pytest.raises(RequestError, match=r"no module 'no\.such'"):
        load("no.such")
    with pytest.raises(RequestError, match="module json has no EXTENSION"):
        load("json")


def test_versions_are_semantic():
    assert BASELINE.serves(Version(BASELINE.major, 0)) and str(Version.parse("1.12")) == "1.12"
    assert Version(1, 3).serves(Version(1, 2)) and not Version(1, 2).serves(Version(1, 3))
    assert not Version(2, 0).serves(Version(1, 0)) and not Version(1, 0).serves(Version(2, 0))
    with pytest.raises(RequestError, match=r"MAJOR\.MINOR"):
        Version.parse("1")


def test_nothing_of_an_extension_is_in_the_baseline():
    assert not any("." in op.name for op in OPS)
    assert problems_of(acme.EXTENSION) == {"acme.hard_swish": [], "acme_fuse_relu": []}
