"""A product, its bias and the SiLU after it as one operation.

    silu(add(matmul(a, w), b))   ->   matmul_silu(a, w, b)           b: [N], the sum in either order
    silu(matmul(a, w))           ->   matmul_silu(a, w)

where nothing else reads the inner values and all are to run on one device. `canonicalise` has made silu of
x * sigmoid(x) and of x / (1 + exp(-x)). Every bit is kept.
"""

from __future__ import annotations

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.passes.dce import erase_dead
from unsay.compiler.passes.match import addends, made_by, remarks, run_together


def fuse_gemm_bias_silu(graph: Graph) -> int:
    """Number of products fused."""
    return sum(_fuse(graph, operation) for operation in list(graph.operations) if operation.kind == "silu")


def _fuse(graph: Graph, silu: Operation) -> bool:
    found = _biased_product(silu.operands[0]) or _product(silu.operands[0])
    if found is None or not run_together(silu, *found[1]):
        return False
    operands, inner = found
    name = silu.result.name
    result = emit(graph, "matmul_silu", *operands, name=name, before=silu, **remarks(silu))
    graph.substitute(silu, (result,))
    erase_dead(graph, *inner)
    return True


def _product(value: Value) -> tuple[tuple[Value, ...], list[Operation]] | None:
    """Operands of the matmul that made the value, and that operation."""
    product = made_by(value, "matmul")
    return (product.operands, [product]) if product is not None else None


def _biased_product(value: Value) -> tuple[tuple[Value, ...], list[Operation]] | None:
    """Operands of the matmul and the bias added to it, and the two operations."""
    total = made_by(value, "add")
    found = addends(total, "matmul") if total is not None else None
    if total is None or found is None:
        return None
    bias, product = found
    if bias.type.dims != product.result.type.dims[-1:]:
        return None
    return (*product.operands, bias), [total, product]
