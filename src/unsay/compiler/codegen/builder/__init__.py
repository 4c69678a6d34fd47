"""A builder for LLVM IR text: functions, structured loops, typed values with operators. Knows nothing of LLVM itself.

    def write(f: Function) -> None:
        total = f.slot(F32X16, 0.0)
        with f.loop("i", 0, f["n"], step=16) as i:
            total.set(total.get() + f.load(F32X16, f["x"].at(i * 4)))
        f.store(total.get(), f["sums"])

    module.define("add_up", [(PTR, "x"), (I64, "n"), (PTR, "sums")], write, "sums of x, lane by lane")

Every value is a named SSA value; a Slot is an alloca, which LLVM turns into registers. Addresses count bytes.
"""

from unsay.compiler.codegen.builder.function import Function
from unsay.compiler.codegen.builder.kinds import (
    BOOL,
    F16,
    F16X16,
    F32,
    F32X16,
    F64,
    I8,
    I16,
    I32,
    I32X16,
    I64,
    PTR,
    element_type,
    literal,
    vector,
    with_element,
)
from unsay.compiler.codegen.builder.module import Module
from unsay.compiler.codegen.builder.value import Slot, Value

__all__ = [
    "BOOL", "F16", "F16X16", "F32", "F32X16", "F64", "I8", "I16", "I32", "I32X16", "I64", "PTR",
    "Function", "Module", "Slot", "Value", "element_type", "literal", "vector", "with_element",
]  # fmt: skip
