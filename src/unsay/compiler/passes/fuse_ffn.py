"""A whole gated feed-forward block with its residual as one operation.

    add(r, linear(silu_mul(linear(x, wg), linear(x, wu)), wd))   ->   ffn(r, x, wg, wu, wd)

where the inner values are read once, no product has a bias, wg and wu are of one type with a multiple of 32 rows (they
are packed in alternating groups of 16, and a kernel makes 32 inner columns at a time), and nothing reads r afterwards
(the result takes over its memory). add commutes in every bit, so r may be on either side.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import addends, made_by
from unsay.compiler.verify.spec import is_last_use
from unsay.isa.formats import QUANT_BLOCK


def fuse_ffn(graph: Graph) -> int:
    """Number of blocks fused."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "add")


def _fuse(graph: Graph, operation: Operation) -> bool:
    found = addends(operation, "linear")
    hidden = made_by(found[1].operands[0], "silu_mul") if found else None
    if found is None or hidden is None:
        return False
    residual, down = found
    inputs = _gate_up(hidden)
    if inputs is None or len(down.operands) != 2 or not is_last_use(graph, residual, operation):
        return False
    x, gate, up = inputs
    result = emit(
        graph, "ffn", residual, x, gate, up, down.operands[1],
        name=operation.result.name, before=operation, hidden=hidden.string("output"),
    )  # fmt: skip
    graph.substitute(operation, (result,))
    erase_dead(graph, down)
    return True


def _gate_up(hidden: Operation) -> tuple[Value, Value, Value] | None:
    """x, wg, wu of silu_mul(linear(x, wg), linear(x, wu))."""
    gate, up = (made_by(value, "linear") for value in hidden.operands)
    if gate is None or up is None or len(gate.operands) != 2 or len(up.operands) != 2:
        return None
    (x, gate_weight), (other_x, up_weight) = gate.operands, up.operands
    num_rows = gate_weight.type.dims[0]
    whole = isinstance(num_rows, int) and num_rows % QUANT_BLOCK == 0
    if x is not other_x or gate_weight.type != up_weight.type or not whole:
        return None
    return x, gate_weight, up_weight
