"""FFN (N10), first half: hidden = silu(W_gate x) * (W_up x), gate and up being row groups of one matrix in turn.

The second half, out += W_down hidden, is a MATMUL with ACCUMULATE.
"""

from __future__ import annotations

from unsay.compiler.codegen.builder import Function, Module, Value
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.matmul import row_loop
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.codegen.kernels.vector import Output, kernel_parameters, silu_mul
from unsay.isa.formats import DType


def gate_up(module: Module, unit: DotUnit, product: Product, hidden_dtype: DType) -> str:
    """Kernel (out hidden [T][F], x, weights [2 F, K]: 16 rows of gate, 16 of up, and so on)."""

    def write(f: Function) -> None:
        out = Output(f["out"], hidden_dtype, product.capacity, product.num_rows // 2)

        def finish(index: Value, token: Value, sums: list[Value]) -> None:
            values = [silu_mul(f, gate, up) for gate, up in zip(sums[::2], sums[1::2], strict=True)]
            out.store(f, token, index * out.step, values)

        row_loop(f, unit, product, out.step // 8, finish)

    return module.define(
        f"gate_up_{product.name}_{hidden_dtype.name.lower()}",
        kernel_parameters("out", "x", "weights"),
        write,
        f"hidden {hidden_dtype.name} [T][{product.num_rows // 2}] = silu(W_gate x) * (W_up x), {product.dtype.name}",
    )
