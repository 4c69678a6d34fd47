"""Third stage: a program of ONNX nodes as LLMIR.

Each node goes one of three ways. Its operands are all in hand and small: it is computed here (fold.py). It has a rule
(`_FAMILIES` are the modules that have them): the rule adds operations. Or it is a problem: all are
collected, what reads what a problem would have made is left out, and UnimportableError lists every one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unsay.compiler.dialect import ops, verifier
from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.onnx import activations, arithmetic, attention, indexing, neural, norms, pictures, shaping
from unsay.compiler.frontend.onnx.builder import Builder, Item, known, spell
from unsay.compiler.frontend.onnx.call import Call
from unsay.compiler.frontend.onnx.fold import fold
from unsay.compiler.frontend.onnx.normalise import Program, where
from unsay.compiler.frontend.onnx.parse import Node, Port
from unsay.compiler.frontend.onnx.rule import Rule
from unsay.compiler.frontend.onnx.sizes import Names, RefusalError
from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.ir.types import TensorType
from unsay.errors import IrError, ModelFileError, RequestError, UnimportableError, UnsupportedError

_FAMILIES = (arithmetic, activations, shaping, indexing, neural, norms, pictures, attention)
RULES: dict[str, Rule] = {kind: rule for family in _FAMILIES for kind, rule in family.RULES.items()}

ATTRIBUTES: Mapping[str, frozenset[str]] = {kind: rule.attributes for kind, rule in RULES.items()}
"""The attributes each rule reads, for normalise.py."""


def generate(program: Program, ranges: Mapping[str, tuple[int, int]] | None = None) -> Imported:
    """The program as a checked graph; `ranges` bounds dimensions by name (sizes.DEFAULT_RANGE otherwise).

    Raises UnimportableError with every problem, ModelFileError for nodes whose operands do not fit together.
    """
    builder = Builder(Graph(spell(program.name) if program.name[:1].isalpha() else "main", ()))
    builder.items.update((name, known(tensor, name)) for name, tensor in program.constants.items())
    problems = list(program.problems)
    names = Names(builder.graph, ranges or {})
    for port in program.inputs:
        if port.sizes is None:
            problems.append(f"input {port.name[:80]!r}: the file does not state its rank")
        else:
            builder.items[port.name] = _input(builder, port, port.sizes, names)
    for node in program.nodes:
        _node(builder, node, program.opset, problems)
    if problems:
        raise UnimportableError("the model", problems)
    if unknown := names.unknown():
        raise RequestError(
            f"the model has no dimension {min(unknown)}, it has {', '.join(builder.graph.dims) or 'none'}"
        )
    _finish(builder, program)
    return Imported(builder.graph, _used_weights(builder))


def _finish(builder: Builder, program: Program) -> None:
    """The outputs, and nothing that leads to none; what breaks a rule now had attributes no operator may have."""
    try:
        outputs = [builder.lift(builder.items[name]) for name in program.outputs]
        builder.graph.add("output", outputs)
        _drop_unused(builder)
        verifier.verify(builder.graph)
    except RefusalError as refusal:
        raise UnimportableError("the model", [f"its outputs: {refusal}"]) from refusal
    except IrError as error:
        raise ModelFileError(str(error)) from error


def _input(builder: Builder, port: Port, sizes: Sequence[int | str | None], names: Names) -> Value:
    """A size without a name is called after the input and its place."""
    dims = [
        size if isinstance(size, int) else names.declare(size or f"{port.name}_{axis}")
        for axis, size in enumerate(sizes)
    ]
    kind = TensorType(tuple(dims), port.dtype)
    return builder.graph.add("input", (), {"name": port.name}, [(spell(port.name), kind)]).result


def _node(builder: Builder, node: Node, opset: int, problems: list[str]) -> None:
    """Add what the node means; a problem is noted, and its outputs stay undefined."""
    if node.domain or node.kind not in RULES or not _is_ready(builder, node):
        return
    builder.begin(node)
    call = Call(builder, node, opset)
    try:
        made = _import(call)
    except (RefusalError, UnsupportedError) as refusal:
        problems.append(f"{where(node, opset)}: {refusal}")
        return
    except IrError as error:
        raise ModelFileError(f"{where(node, opset)}: {error}") from error
    builder.end(made[0])
    for name, item in zip(node.outputs, made, strict=False):
        builder.items[name] = item
    if any(node.outputs[len(made) :]):
        problems.append(f"{where(node, opset)}: output {len(made)} ({node.outputs[len(made)][:80]!r}) is not made")


def _import(call: Call) -> tuple[Item, ...]:
    rule = RULES[call.node.kind]
    if not rule.min_inputs <= len(call.node.inputs) <= rule.max_inputs:
        raise RefusalError(f"{len(call.node.inputs)} inputs, {rule.min_inputs} to {rule.max_inputs:g} are possible")
    folded = fold(call)
    if folded is not None:
        return (folded,)
    made = rule.run(call)
    return made if isinstance(made, tuple) else (made,)


def _is_ready(builder: Builder, node: Node) -> bool:
    return all(not name or name in builder.items for name in node.inputs)


def _drop_unused(builder: Builder) -> None:
    """Erase what was lifted or made on the way and is read by nothing; inputs stay."""
    for operation in reversed(builder.graph.operations):
        is_used = any(value.uses for value in operation.results)
        if ops.BY_NAME[operation.kind].pure and not is_used and operation.kind != "input":
            builder.graph.erase(operation)


def _used_weights(builder: Builder) -> dict[str, Any]:
    names = [operation.string("tensor") for operation in builder.graph.operations if operation.kind == "weight"]
    return {name: builder.weights[name] for name in names}
