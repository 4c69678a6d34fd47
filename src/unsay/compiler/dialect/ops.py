"""Every operation of LLMIR, once: operands, attributes, shape rule, invariants.

Two families (docs/decisions/005): step_ops.py, what lowering knows; tensor_ops.py, what front ends make. `weight`,
`add`, `mul`, `silu` and `output` are in both.

Readers of this table: the verifier, the passes (through `emit`), lowering, docs/llmir.md, the SMT semantics.
A row is complete when a test of its rule is in tests/compiler/dialect/test_ops.py.

Arithmetic is that of docs/numerics.md, bit for bit; the section is named in `doc`. `attribute_invariants` are
Python expressions over the attributes. `value_invariants` are expressions over operands, results and the
names the row's doc defines, true for every finite input up to rounding; tests evaluate them with NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unsay.compiler.dialect.fused_ops import FUSED_TENSOR_OPS
from unsay.compiler.dialect.op import Attribute, Invariant, Op
from unsay.compiler.dialect.step_ops import STEP_OPS
from unsay.compiler.dialect.tensor_ops import TENSOR_OPS
from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.types import TensorType

__all__ = ["BY_NAME", "NORMS", "OPS", "Attribute", "Invariant", "Op", "build", "declare", "emit"]

OPS: tuple[Op, ...] = (*STEP_OPS, *TENSOR_OPS, *FUSED_TENSOR_OPS)

BY_NAME: dict[str, Op] = {op.name: op for op in OPS}
assert len(BY_NAME) == len(OPS)

NORMS = frozenset({"rms_norm", "layer_norm"})


def emit(
    graph: Graph,
    kind: str,
    *operands: Value,
    name: str,
    before: Operation | None = None,
    **attributes: AttributeValue,
) -> Value:
    """Add an operation of one result, its type inferred; raises IrError where the operands do not fit."""
    return build(graph, kind, operands, attributes, (name,), before=before).result


def build(
    graph: Graph,
    kind: str,
    operands: Sequence[Value],
    attributes: Mapping[str, AttributeValue],
    names: Sequence[str],
    *,
    before: Operation | None = None,
) -> Operation:
    """Add an operation, its result types inferred and its results named."""
    rule = BY_NAME[kind].rule
    assert rule is not None, f"{kind}: its results are declared"
    types = rule([operand.type for operand in operands], attributes, graph.dims)
    return graph.add(kind, operands, attributes, zip(names, types, strict=True), before=before)


def declare(
    graph: Graph,
    kind: str,
    *operands: Value,
    name: str,
    type: TensorType,
    before: Operation | None = None,
    **attributes: AttributeValue,
) -> Value:
    """Add an operation whose result is declared (constant, reshape, ...); raises IrError where it does not fit."""
    check = BY_NAME[kind].check
    if check is not None:
        check([operand.type for operand in operands], attributes, [type])
    return graph.add(kind, operands, attributes, [(name, type)], before=before).result
