"""Checks of an operation of an extension, run with its rows in the tables: what is wrong, or None."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

from unsay.compiler.dialect.domains import FIELD, FLOAT, Array, Domain
from unsay.compiler.dialect.invariants import holds
from unsay.compiler.dialect.ops import OPS
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.extension.contract import OpExtension
from unsay.compiler.extension.samples import at_some_sizes, close, inputs_of, same
from unsay.compiler.extension.tables import expand_with
from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.ir.evaluate import evaluate, trace
from unsay.compiler.ir.mlir import to_mlir
from unsay.compiler.ir.mlir_reader import from_mlir
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.ir.types import TensorType
from unsay.errors import IrError
from unsay.isa.formats import DType

Check: TypeAlias = Callable[[OpExtension], str | None]

_BASELINE_OPS = frozenset(op.name for op in OPS)
_ODD_TYPES = tuple(
    TensorType(dims, dtype) for dims in ((), (3,), (2, 3), (1, 2, 3, 4)) for dtype in (DType.F32, DType.I64, DType.BOOL)
)


def has_a_row(op: OpExtension) -> str | None:
    """The row is whole: documented, of the tensor family, and its meaning gives as many results as it names."""
    row = op.row
    if row.family != "tensor" or row.fused or row.in_place is not None:
        return "its row must be of family tensor, neither fused nor in place: it is lowered by its fallback"
    if row.rule is None and row.check is None:
        return "its row needs a shape rule, or a check of declared results"
    return None if row.doc.strip() else "its row needs a doc that says what it computes"


def is_at_work_in_its_examples(op: OpExtension) -> str | None:
    """Every example is a legal graph with the operation in it, on inputs alone, at symbolic and at fixed sizes."""
    if not op.examples:
        return "it needs an example, an LLMIR text with the operation in it"
    for graph in map(parse, op.examples):
        verify(graph)
        verify(at_some_sizes(graph))
        if not _uses(op, graph):
            return f"the example {graph.name} does not have it"
    return None


def has_a_rule_for_any_operands(op: OpExtension) -> str | None:
    """The rule gives types or raises IrError, whatever the operands are."""
    for use in _each_use(op):
        types = [value.type for value in use.operands]
        for place, odd in itertools.product(range(len(types)), _ODD_TYPES):
            given = [*types[:place], odd, *types[place + 1 :]]
            try:
                found = _inferred(op, use, given)
            except IrError:
                continue
            if not all(isinstance(kind, TensorType) for kind in found):
                return f"its rule gives {found!r} for {', '.join(map(str, given))}"
    return None


def _inferred(op: OpExtension, use: Operation, types: list[TensorType]) -> tuple[object, ...]:
    declared = tuple(value.type for value in use.results)
    if op.row.rule is not None:
        return op.row.rule(types, use.attributes, {})
    assert op.row.check is not None
    op.row.check(types, use.attributes, declared)
    return declared


def is_a_function(op: OpExtension) -> str | None:
    """The same operands give the same results, in any domain, and cannot be written to."""
    for graph, domain in itertools.product(map(parse, op.examples), (FLOAT, FIELD)):
        for use, operands, results in _uses_of_run(op, graph, domain):
            for array in operands:
                array.flags.writeable = False
            if not all(map(same, results, op.meaning(domain, use, operands))):
                return f"its meaning gives other results the second time, over {type(domain).__name__}"
    return None


def keeps_its_invariants(op: OpExtension) -> str | None:
    """Each holds on the examples, and would refuse other results."""
    for graph in map(parse, op.examples):
        for use, operands, results in _uses_of_run(op, graph, FLOAT):
            names = {name.rstrip("?"): array for name, array in zip(op.row.operands, operands, strict=False)}
            for invariant in op.row.value_invariants:
                if not holds(invariant, {**use.attributes, **names, **_named(op, results)}):
                    return f"{invariant} is broken in the example {graph.name}"
                wrong = ([array + 9 for array in results], [array - 9 for array in results])
                if all(holds(invariant, {**use.attributes, **names, **_named(op, other)}) for other in wrong):
                    return f"{invariant} refuses nothing in the example {graph.name}"
    return None


def prints_and_parses(op: OpExtension) -> str | None:
    """Graphs with it come back from text, ours and that of MLIR."""
    for graph in map(parse, op.examples):
        text = print_graph(graph)
        if print_graph(parse(text)) != text or print_graph(from_mlir(to_mlir(graph))) != text:
            return f"the example {graph.name} does not come back from text"
    return None


def has_a_fallback_of_the_baseline(op: OpExtension) -> str | None:
    """In its examples the fallback leaves legal graphs, of operations of the baseline."""
    for graph in map(parse, op.examples if op.fallback else ()):
        expanded = _expanded(op, graph)
        verify(expanded)
        others = {operation.kind for operation in expanded.operations} - _BASELINE_OPS
        if others:
            return f"its fallback uses {', '.join(sorted(others))}, which is not of the baseline"
    return None


def is_equal_to_its_fallback(op: OpExtension) -> str | None:
    """The fallback gives the same: exactly in the field, closely in floats."""
    for graph, domain in itertools.product(map(parse, op.examples if op.fallback else ()), (FLOAT, FIELD)):
        given = inputs_of(at_some_sizes(graph), domain, seed=1)
        sides = (evaluate(each, *given, domain) for each in (graph, _expanded(op, graph)))
        if not all(map(close, *sides)):
            return f"its fallback gives something else in the example {graph.name}, over {type(domain).__name__}"
    return None


def _expanded(op: OpExtension, graph: Graph) -> Graph:
    assert op.fallback is not None
    copy = graph.copy()
    expand_with(copy, {op.row.name: op.fallback})
    return copy


CHECKS: tuple[Check, ...] = (
    has_a_row, is_at_work_in_its_examples, has_a_rule_for_any_operands, is_a_function, keeps_its_invariants,
    prints_and_parses, has_a_fallback_of_the_baseline, is_equal_to_its_fallback,
)  # fmt: skip

FALLBACK_CHECKS: tuple[Check, ...] = (has_a_row, is_at_work_in_its_examples, has_a_fallback_of_the_baseline)
"""What must hold of an operation that its fallback stands in for."""


def _uses(op: OpExtension, graph: Graph) -> list[Operation]:
    return [operation for operation in graph.operations if operation.kind == op.row.name]


def _each_use(op: OpExtension) -> list[Operation]:
    return [use for text in op.examples for use in _uses(op, at_some_sizes(parse(text)))]


def _uses_of_run(op: OpExtension, graph: Graph, domain: Domain) -> list[tuple[Operation, list[Array], list[Array]]]:
    given = inputs_of(at_some_sizes(graph), domain, seed=1)
    return [step for step in trace(graph, *given, domain) if step[0].kind == op.row.name]


def _named(op: OpExtension, results: list[Array]) -> dict[str, Array]:
    return dict(zip(op.row.results, results, strict=True))
