"""QUANT (N3, N3w, N14), SILU_MUL (N10) and ADD: one pass over whole rows, a block of columns at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from unsay.compiler.codegen.builder import F32X16, Function, Module, Value
from unsay.compiler.codegen.kernels.rows import store_row
from unsay.compiler.codegen.kernels.vector import (
    Output,
    kernel_parameters,
    leave_if_interrupted,
    share,
    silu_mul,
)
from unsay.isa.formats import DType


def quantise(module: Module, out_dtype: DType, width: int, capacity: int) -> str:
    """Kernel (out Q8A, Q8W or Q16, x f32)."""
    return _pass(module, "quant", ("x",), out_dtype, width, capacity, lambda _, x: x[0])


def silu_times(module: Module, out_dtype: DType, width: int, capacity: int) -> str:
    """Kernel (out, gate f32, up f32): out = silu(gate) * up."""
    return _pass(
        module, "silu_mul", ("gate", "up"), out_dtype, width, capacity, lambda f, pair: silu_mul(f, pair[0], pair[1])
    )


def add(module: Module, width: int, capacity: int) -> str:
    """Kernel (out f32, a f32, b f32): out = a + b."""
    return _pass(module, "add", ("a", "b"), DType.F32, width, capacity, lambda _, pair: pair[0] + pair[1])


def _pass(
    module: Module,
    name: str,
    inputs: tuple[str, ...],
    out_dtype: DType,
    width: int,
    capacity: int,
    combine: Callable[[Function, list[Value]], Value],
) -> str:
    def write(f: Function) -> None:
        out = Output(f["out"], out_dtype, capacity, width)
        begin, end = share(f, f["count"])

        def combined(row: Value, column: Value) -> Value:
            start = (row * width + column) * 4
            return combine(f, [f.load(F32X16, f[source].at(start), align=4) for source in inputs])

        with f.loop("row", begin, end) as row:
            leave_if_interrupted(f)
            store_row(f, out, row, partial(combined, row))

    doc = f"out {out_dtype.name} [T][{width}] = {name} of {', '.join(inputs)} f32 [T][{width}]"
    full_name = f"{name}_{out_dtype.name.lower()}_{width}_t{capacity}"
    return module.define(full_name, kernel_parameters("out", *inputs), write, doc)
