"""What a graph may contain on its way down: levels, each with its operations and its rules.

A graph of a front end has two:

    tensor      any operation of the table
    placed      and every operation finds its operands on its own device, in the layout that device computes in

A step of a language model, which the engine runs, has four:

    semantic    what the model computes; no quantised activations
    quantised   every product with a quantised weight has a quantised operand: the arithmetic is now fixed
    fused       operations that one AVM instruction carries out
    lowerable   nothing is left that `lower` cannot place in memory or has no instruction for

A pass states the level it takes and the level it leaves; `check` runs on both (passes/pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import NoReturn, TypeAlias

from unsay.compiler.dialect import verifier
from unsay.compiler.dialect.devices import PICTURE_OPS, takes
from unsay.compiler.dialect.ops import BY_NAME, NORMS
from unsay.compiler.dialect.sema import DEVICE, OFFSETS, STAGE
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import DEVICES, ROW
from unsay.compiler.verify.memory_plan import check_memory
from unsay.errors import IrError
from unsay.isa.formats import QUANTISED_ACTIVATIONS, QUANTISED_WEIGHTS, ROW_GROUP, DType


class Level(IntEnum):
    """How far down a graph is."""

    TENSOR = 0
    PLACED = 1
    SEMANTIC = 2
    QUANTISED = 3
    FUSED = 4
    LOWERABLE = 5


Rule: TypeAlias = Callable[[Graph], None]

_SEMANTIC = frozenset(
    ("weight", "tokens", "embed", "rms_norm", "layer_norm", "linear", "rope", "attention", "add", "silu", "mul",
     "select_rows", "output")
)  # fmt: skip
_QUANTISED = _SEMANTIC | {"quantise"}
_FUSED = _QUANTISED | {"silu_mul", "ffn", "qkv", "linear_add"}
_OPERATIONS: dict[Level, frozenset[str]] = {
    Level.SEMANTIC: _SEMANTIC,
    Level.QUANTISED: _QUANTISED,
    Level.FUSED: _FUSED,
    Level.LOWERABLE: _FUSED - {"silu", "mul"},
}

_PRODUCTS = {"linear": ((0, 1),), "linear_add": ((1, 2),), "qkv": ((0, 1),), "ffn": ((1, 2),)}
"""Operations with a matrix product: pairs of (activation, weight) operand."""


def allowed(level: Level) -> frozenset[str]:
    """Names of the operations a graph of this level may contain; of a front end, those of extensions too."""
    return _OPERATIONS[level] if level in _OPERATIONS else frozenset(BY_NAME)


def verify(graph: Graph) -> None:
    """Raise IrError unless the graph may be lowered: what `lower` relies on."""
    check(graph, Level.LOWERABLE)


def check(graph: Graph, level: Level, checked: verifier.Checked | None = None) -> None:
    """Raise IrError unless the graph is well formed and legal at this level; `checked` as in dialect.verifier."""
    verifier.verify(graph, checked)
    operations = allowed(level)
    for operation in graph.operations:
        if operation.kind not in operations:
            _refuse(operation, f"not allowed at level {level.name.lower()}")
    for rule in _RULES[level]:
        rule(graph)


def is_last_use(graph: Graph, value: Value, operation: Operation) -> bool:
    """Whether nothing reads the value after `operation`, and `operation` reads it once."""
    readers = _readers(value)
    others = [reader for reader in readers if reader is not operation]
    if len(readers) - len(others) != 1:
        return False
    position = graph.operations.index(operation)
    return all(graph.operations.index(reader) < position for reader in others)


def _readers(value: Value) -> list[Operation]:
    """Who reads the value's memory: its users, and those of rows selected from it, which are no copy."""
    selected = [reader for user in value.uses if user.kind == "select_rows" for reader in _readers(user.result)]
    return [*value.uses, *selected]


def _one_result(graph: Graph) -> None:
    """Exactly one output, at the end, of R rows of f32; each layer attends once."""
    outputs = [operation for operation in graph.operations if operation.kind == "output"]
    if len(outputs) != 1 or graph.operations[-1] is not outputs[0]:
        raise IrError(f"graph {graph.name} must end in its only output, it has {len(outputs)}", *graph.location)
    types = [value.type for value in outputs[0].operands]
    if len(types) != 1 or types[0].rank != 2 or types[0].dims[0] != graph.dims.get("R") or types[0].dtype != DType.F32:
        _refuse(outputs[0], f"logits must be R rows of f32, got {', '.join(map(str, types))}")
    layers = [operation.integer("layer") for operation in graph.operations if operation.kind == "attention"]
    if sorted(layers) != list(range(len(layers))):
        raise IrError(f"the layers that attend must be 0..{len(layers) - 1}, each once, got {layers}", *graph.location)


def _activations_are_matrices(graph: Graph) -> None:
    """Activations are f32 matrices, and a step has no broadcast."""
    for operation in graph.operations:
        if operation.kind in NORMS and operation.result.type.rank != 2:
            _refuse(operation, "a step does this with matrices only")
        if operation.kind in ("add", "mul", "silu"):
            result = operation.result.type
            alike = all(operand.type == result for operand in operation.operands)
            if not alike or result.rank != 2 or result.dtype is not DType.F32:
                _refuse(operation, "a step does this with f32 matrices of one type only")


def _no_quantised_activations(graph: Graph) -> None:
    for operation in graph.operations:
        if any(value.type.dtype in QUANTISED_ACTIVATIONS for value in operation.results):
            _refuse(operation, "no quantised activations at level semantic")


def _operands_quantised(graph: Graph) -> None:
    for operation in graph.operations:
        for x, w in _PRODUCTS.get(operation.kind, ()):
            quantised = operation.operands[w].type.dtype in QUANTISED_WEIGHTS
            if quantised != (operation.operands[x].type.dtype in QUANTISED_ACTIVATIONS):
                name = operation.operands[x].name
                _refuse(operation, f"%{name} must be quantised, q8a or q8w, exactly when the weight is")


def _in_place_is_safe(graph: Graph) -> None:
    """An operation that writes over an operand is the last to read it, and does not read it twice."""
    for operation in graph.operations:
        index = BY_NAME[operation.kind].in_place
        if index is not None and not is_last_use(graph, operation.operands[index], operation):
            _refuse(operation, f"writes over %{operation.operands[index].name}, which is read again")


def _rope_pairs_adjacent(graph: Graph) -> None:
    for operation in graph.operations:
        if operation.kind not in ("rope", "qkv"):
            continue
        layout = operation.results[0].type.layout
        if (operation.string("pairing") == "adjacent") != (layout == ROW):
            _refuse(operation, "pairs are not adjacent in memory; run pair_rope_rows")


def _memory_is_plain(graph: Graph) -> None:
    """select_rows has no memory of its own, q, k, v of a qkv share one tensor, logits are written by a product."""
    for operation in graph.operations:
        users = [user.kind for value in operation.results for user in value.uses]
        if operation.kind == "select_rows" and not set(users) <= NORMS:
            _refuse(operation, f"only norms can read selected rows, got {users}")
        if operation.kind == "qkv" and set(users) - {"attention"}:
            _refuse(operation, f"only attention can read q, k and v, got {users}")
        if operation.kind == "output":
            logits = operation.operands[0]
            if logits.producer.kind != "linear" or len(logits.uses) != 1:
                _refuse(operation, f"%{logits.name} must be a linear that only output reads")


def _rows_are_whole_groups(graph: Graph) -> None:
    """Kernels write whole groups of 16 columns; the logits alone are padded."""
    for operation in graph.operations:
        for value in operation.results:
            width = value.type.dims[-1]
            logits = any(user.kind == "output" for user in value.uses)
            activation = operation.kind not in ("weight", "tokens") and not logits
            if activation and (not isinstance(width, int) or width % ROW_GROUP):
                _refuse(operation, f"rows of {value.type} must be a multiple of {ROW_GROUP}")


def _refuse(operation: Operation, message: str) -> NoReturn:
    raise IrError(f"{operation!r}: {message}", *operation.location)


def _remarks_hold(graph: Graph) -> None:
    """A device is one there is, of an operation that reads something; stages follow operands; memory is not shared."""
    scheduled = any(STAGE in operation.attributes for operation in graph.operations)
    for operation in graph.operations:
        device = operation.attributes.get(DEVICE)
        if device is not None and (device not in DEVICES or not operation.operands):
            _refuse(operation, f"{DEVICE} must be one of {', '.join(sorted(DEVICES))}, on an operation with operands")
        if scheduled:
            _check_stage(operation)
    if any(OFFSETS in operation.attributes for operation in graph.operations):
        check_memory(graph)


def _check_stage(operation: Operation) -> None:
    """What schedules mean: an operation runs after all that its operands are made by."""
    stage = operation.attributes.get(STAGE)
    if type(stage) is not int or stage < 0:
        _refuse(operation, f"all operations or none have a {STAGE}, 0 or more, got {stage!r}; run schedule")
    for operand in operation.operands:
        before = operand.producer.attributes.get(STAGE)
        if type(before) is not int or before >= stage:
            _refuse(operation, f"%{operand.name} is made in stage {before!r}, not before {stage}; run schedule")


def _operands_at_hand(graph: Graph) -> None:
    """Operations are where they are to run, and read pictures as their device takes them."""
    for operation in graph.operations:
        wanted = operation.attributes.get(DEVICE)
        for value in operation.results:
            if wanted is not None and operation.kind != "transfer" and value.type.device != wanted:
                _refuse(operation, f"is for the {wanted}, and runs on the {value.type.device}; run insert_reorders")
        if operation.kind in PICTURE_OPS and not takes(operation.result.type.device, operation.operands[0].type):
            x = operation.operands[0]
            _refuse(operation, f"%{x.name} : {x.type} is not how its device takes pictures; run insert_reorders")


_STEP = (_one_result, _activations_are_matrices)
_RULES: dict[Level, tuple[Rule, ...]] = {
    Level.TENSOR: (_remarks_hold,),
    Level.PLACED: (_remarks_hold, _operands_at_hand),
    Level.SEMANTIC: (*_STEP, _no_quantised_activations),
    Level.QUANTISED: (*_STEP, _operands_quantised),
    Level.FUSED: (*_STEP, _operands_quantised),
    Level.LOWERABLE: (
        *_STEP,
        _operands_quantised,
        _in_place_is_safe,
        _rope_pairs_adjacent,
        _memory_is_plain,
        _rows_are_whole_groups,
    ),
}
