"""A GPU kernel as source in a language of C's family: WGSL (Vulkan, Metal and D3D12 through WebGPU) and MSL (Metal).

WGSL leaves arithmetic more freedom than docs/numerics.md does, and its text takes it back where it can:

    WGSL allows                                              the text
    fma(a, b, c) as two roundings; x * y + z as one          fused sums in integers (exact.py), no other sum of products
    2.5 ulp of error in a division, more in a square root    both in integers
    an integer of more than 24 bits rounded either way       converted in two exact halves, added
    f16 rounded either way, its denormals as zero            converted in integers
    f32 denormals read or written as zero                    left: a product or sum below 2^-126 may differ
    a sum or product rounded up or down                      left: every implementation known rounds to nearest even

With `native_fma` the device's own fma is used: faster, and equal only where the device fuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unsay.compiler.codegen.gpu.exact import EXACT_WGSL
from unsay.compiler.codegen.gpu.lanes import (
    Assign,
    Barrier,
    Declare,
    Expr,
    Kernel,
    Loop,
    Memory,
    Statement,
    Store,
    Type,
    When,
)

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "quotient": "/", "remainder": "%", "and": "&", "or": "|", "less": "<",
    "equal": "==",
}  # fmt: skip
"""The same in every language."""


@dataclass(frozen=True, slots=True)
class Language:
    """calls: text of the other operations, {0} {1} {2} being operands; declare: of (type, name, value, changes)."""

    types: dict[Type, str]
    calls: dict[str, str]
    declare: Callable[[str, str, str, bool], str]
    barrier: str


def wgsl(kernel: Kernel, native_fma: bool = False) -> str:
    """The kernel as a WGSL module: an entry point of the kernel's name, its buffers bindings 0, 1 .. of group 0."""
    calls = _WGSL.calls | ({"fma": "fma({0}, {1}, {2})"} if native_fma else {})
    language = Language(_WGSL.types, calls, _WGSL.declare, _WGSL.barrier)
    body = Writer(language).text(kernel.body, 1)
    buffers = [
        f"@group(0) @binding({place}) var<storage, {'read_write' if buffer.writes else 'read'}> "
        f"{buffer.name}: array<{buffer.type}>;"
        for place, buffer in enumerate(kernel.buffers)
    ]
    shared = [f"var<workgroup> {a.name}: array<{a.type}, {a.length}>;" for a in kernel.shared_arrays]
    head = [
        f"@compute @workgroup_size({kernel.lanes})",
        f"fn {kernel.name}(@builtin(local_invocation_index) lane_index: u32,",
        "    @builtin(workgroup_id) group_index: vec3<u32>) {",
        "  let lane: i32 = i32(lane_index);",
        "  let group: i32 = i32(group_index.x);",
        "  let row: i32 = i32(group_index.y);",
    ]
    return "\n".join([f"// {kernel.doc}", *buffers, *shared, "", EXACT_WGSL, *head, *body, "}", ""])


def msl(kernels: Sequence[Kernel]) -> str:
    """The kernels as Metal source, to be compiled with -fno-fast-math: Metal's fma, division and square root then round
    once to nearest even."""
    return "\n".join([_MSL_HEAD, *map(_msl_kernel, kernels)])


def _msl_kernel(kernel: Kernel) -> str:
    buffers = [
        f"device {'' if buffer.writes else 'const '}{_MSL.types[buffer.type]} *{buffer.name} [[buffer({place})]]"
        for place, buffer in enumerate(kernel.buffers)
    ]
    parameters = [*buffers, "uint lane_index [[thread_index_in_threadgroup]]",
                  "uint3 group_index [[threadgroup_position_in_grid]]"]  # fmt: skip
    lines = [
        f"// {kernel.doc}",
        f"kernel void {kernel.name}({', '.join(parameters)}) {{",
        *(f"  threadgroup {_MSL.types[a.type]} {a.name}[{a.length}];" for a in kernel.shared_arrays),
        "  const int lane = int(lane_index), group = int(group_index.x), row = int(group_index.y);",
        *Writer(_MSL).text(kernel.body, 1),
        "}",
        "",
    ]
    return "\n".join(lines)


class Writer:
    """Statements and expressions in a language."""

    def __init__(self, language: Language) -> None:
        self.language = language

    def text(self, statements: Sequence[Statement], depth: int) -> list[str]:
        """Lines, indented."""
        return ["  " * depth + line for statement in statements for line in self._statement(statement)]

    def _statement(self, statement: Statement) -> list[str]:
        match statement:
            case Declare(name, value, changes):
                return [self.declare(value.type, name, self._bare(value), changes)]
            case Assign(name, value):
                return [f"{self.name(name)} = {self._bare(value)};"]
            case Store(memory, index, value):
                return [f"{self._element(memory, index)} = {self._bare(value)};"]
            case Loop():
                head, end = self.loop_lines(statement)
                return [head, *self.text(statement.body, 1), end]
            case When(condition, body):
                return [f"if ({self._bare(condition)}) {{", *self.text(body, 1), "}"]
            case Barrier():
                return [self.language.barrier]

    def declare(self, kind: Type, name: str, value: str, changes: bool) -> str:
        """A line that names a value."""
        return self.language.declare(self.language.types[kind], name, value, changes)

    def name(self, name: str) -> str:
        """How a value or variable is read and written."""
        return name

    def loop_lines(self, loop: Loop) -> tuple[str, str]:
        """The first and the last line of a loop."""
        start = self.declare("i32", loop.name, self._bare(loop.begin), True)
        return f"for ({start} {loop.name} < {self._value(loop.end)}; {loop.name} += {loop.step}) {{", "}"

    def _element(self, memory: Memory, index: Expr) -> str:
        return f"{memory.name}[{self._bare(index)}]"

    def _bare(self, expr: Expr) -> str:
        """A value where nothing stands beside it: an infix operation without its parentheses."""
        text = self._value(expr)
        return text[1:-1] if expr.op in _INFIX else text

    def _value(self, expr: Expr) -> str:
        if expr.op == "constant":
            return _number(expr)
        if expr.op in ("name", "lane", "group", "row"):
            return self.name(str(expr.leaf)) if expr.op == "name" else expr.op
        if expr.op == "load":
            assert expr.memory is not None, expr
            return self._element(expr.memory, expr.args[0])
        return self._operation(expr.op, [self._value(arg) for arg in expr.args])

    def _operation(self, op: str, values: Sequence[str]) -> str:
        if op in _INFIX:
            return f"({values[0]} {_INFIX[op]} {values[1]})"
        return self.language.calls[op].format(*values)


def _number(expr: Expr) -> str:
    """A constant, exactly; floats in hexadecimal."""
    assert not isinstance(expr.leaf, str), expr
    if expr.type == "i32":
        return str(int(expr.leaf))
    mantissa, exponent = float(np.float32(expr.leaf)).hex().split("p")
    short = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    text = f"{short}p{exponent}f"
    return f"({text})" if text.startswith("-") else text


_WGSL = Language(
    types={"f32": "f32", "i32": "i32", "bool": "bool"},
    calls={
        "div": "divide_exact({0}, {1})",
        "neg": "(-{0})",
        "shl": "({0} << u32({1}))",
        "shr": "({0} >> u32({1}))",
        "fma": "fma_exact({0}, {1}, {2})",
        "sqrt": "sqrt_exact({0})",
        "abs": "abs({0})",
        "round": "round({0})",
        "select": "select({2}, {1}, {0})",
        "to_f32": "to_f32({0})",
        "to_i32": "i32({0})",
        "as_f32": "bitcast<f32>({0})",
        "as_i32": "bitcast<i32>({0})",
        "half": "half_exact({0})",
        "half_bits": "half_bits_exact({0})",
        "dot4": "(dot4I8Packed(bitcast<u32>({0}), bitcast<u32>({1})) + {2})",
    },
    declare=lambda kind, name, value, changes: f"{'var' if changes else 'let'} {name}: {kind} = {value};",
    barrier="workgroupBarrier();",
)

_MSL = Language(
    types={"f32": "float", "i32": "int", "bool": "bool"},
    calls={
        "div": "({0} / {1})",
        "neg": "(-{0})",
        "shl": "({0} << {1})",
        "shr": "({0} >> {1})",
        "fma": "fma({0}, {1}, {2})",
        "sqrt": "precise::sqrt({0})",
        "abs": "fabs({0})",
        "round": "rint({0})",
        "select": "({0} ? {1} : {2})",
        "to_f32": "float({0})",
        "to_i32": "int({0})",
        "as_f32": "as_type<float>({0})",
        "as_i32": "as_type<int>({0})",
        "half": "float(as_type<half>(ushort({0})))",
        "half_bits": "int(as_type<ushort>(half({0})))",
        "dot4": "dot4({0}, {1}, {2})",
    },
    declare=lambda kind, name, value, changes: f"{'' if changes else 'const '}{kind} {name} = {value};",
    barrier="threadgroup_barrier(mem_flags::mem_threadgroup);",
)

_MSL_HEAD = """\
#include <metal_stdlib>
using namespace metal;
#pragma METAL fp contract(off)

// c + the sum of the products of the four int8 in each of two words.
static inline int dot4(int a, int b, int c) {
  const int4 product = int4(as_type<char4>(a)) * int4(as_type<char4>(b));
  return product.x + product.y + product.z + product.w + c;
}
"""
