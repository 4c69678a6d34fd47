"""GPU kernels as BANG C, the C of Cambricon's MLUs: a core does all lanes of a group in turn. Never executed there.

    __mlu_entry__ void kernel(buffers ..., int groups, int rows)     core taskId of taskDim takes every taskDim-th group

Between barriers lanes run one after the other, so what a lane keeps across one is an array of all lanes in NRAM, the
core's own memory. Tests compile the text as C++ against a stand-in for bang.h and run it: it equals the definition, if
an MLU's fmaf rounds once, which its makers do not say. It loads single elements, where a fast kernel would move rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unsay.compiler.codegen.gpu.c_text import Language, Writer
from unsay.compiler.codegen.gpu.lanes import (
    Assign,
    Declare,
    Expr,
    Kernel,
    Loop,
    Statement,
    Store,
    Type,
    When,
    has_barrier,
)


def bang(kernels: Sequence[Kernel]) -> str:
    """The kernels as one source."""
    return "\n".join([_HEAD, *map(_kernel, kernels)])


def _kernel(kernel: Kernel) -> str:
    kept = _kept(kernel)
    buffers = [f"{'' if b.writes else 'const '}{_BANG.types[b.type]} *{b.name}" for b in kernel.buffers]
    shared = [f"  __nram__ {_BANG.types[a.type]} {a.name}[{a.length}];" for a in kernel.shared_arrays]
    own = [f"  __nram__ {_BANG.types[kind]} {name}[{kernel.lanes}];" for name, kind in kept.items()]
    lines = [
        f"// {kernel.doc}",
        f"__mlu_entry__ void {kernel.name}({', '.join(buffers)}, int groups, int rows) {{",
        *shared,
        *own,
        "  for (int unit = taskId; unit < groups * rows; unit += taskDim) {",
        "    const int group = unit % groups, row = unit / groups;",
        *_SerialWriter(kernel.lanes, kept).runs(kernel.body, 2),
        "  }",
        "}",
        "",
    ]
    return "\n".join(lines)


class _SerialWriter(Writer):
    """Statements between barriers in a loop over lanes. kept: names that are arrays of all lanes."""

    def __init__(self, lanes: int, kept: dict[str, Type]) -> None:
        super().__init__(_BANG)
        self.lanes = lanes
        self.kept = kept
        self.lane = "lane"

    def runs(self, statements: Sequence[Statement], depth: int) -> list[str]:
        """Lines of statements that lanes may meet in."""
        lines: list[str] = []
        for part in _runs(statements):
            if isinstance(part, Loop):
                self.lane = "0"
                head, end = self.loop_lines(part)
                self.lane = "lane"
                lines += ["  " * depth + head, *self.runs(part.body, depth + 1), "  " * depth + end]
            else:
                lines.append("  " * depth + f"for (int lane = 0; lane < {self.lanes}; lane += 1) {{")
                lines += [*self.text(part, depth + 1), "  " * depth + "}"]
        return lines

    def declare(self, kind: Type, name: str, value: str, changes: bool) -> str:
        """A kept name has its declaration at the top."""
        return f"{name}[lane] = {value};" if name in self.kept else super().declare(kind, name, value, changes)

    def name(self, name: str) -> str:
        """A kept name's element of this lane; of the first one in bounds of loops, which are the same for all."""
        return f"{name}[{self.lane}]" if name in self.kept else name


def _runs(statements: Sequence[Statement]) -> Iterator[Loop | list[Statement]]:
    """Runs of statements without a barrier, and the loops that have one inside."""
    run: list[Statement] = []
    for statement in statements:
        if not has_barrier([statement]):
            run.append(statement)
            continue
        if run:
            yield run
        run = []
        if isinstance(statement, Loop):
            yield statement
    if run:
        yield run


def _all_runs(statements: Sequence[Statement]) -> Iterator[list[Statement]]:
    for part in _runs(statements):
        if isinstance(part, Loop):
            yield from _all_runs(part.body)
        else:
            yield part


def _kept(kernel: Kernel) -> dict[str, Type]:
    """Names declared in one run and used in another, and loop bounds' names."""
    runs = list(_all_runs(kernel.body))
    declared: list[dict[str, Type]] = [
        {s.name: s.value.type for s in _flat(run) if isinstance(s, Declare)} for run in runs
    ]
    used = [{name for s in _flat(run) for name in _names(s)} for run in runs]
    bounds = {name for loop in _meeting_loops(kernel.body) for e in (loop.begin, loop.end) for name in _in(e)}
    return {
        name: kind
        for place, names in enumerate(declared)
        for name, kind in names.items()
        if name in bounds or any(name in others for other, others in enumerate(used) if other != place)
    }


def _meeting_loops(statements: Sequence[Statement]) -> Iterator[Loop]:
    for part in _runs(statements):
        if isinstance(part, Loop):
            yield part
            yield from _meeting_loops(part.body)


def _flat(statements: Sequence[Statement]) -> Iterator[Statement]:
    for statement in statements:
        yield statement
        if isinstance(statement, Loop | When):
            yield from _flat(statement.body)


def _names(statement: Statement) -> Iterator[str]:
    match statement:
        case Declare(_, value, _):
            yield from _in(value)
        case Assign(name, value):
            yield name
            yield from _in(value)
        case Store(_, index, value):
            yield from _in(index)
            yield from _in(value)
        case Loop(_, begin, end, _, _):
            yield from _in(begin)
            yield from _in(end)
        case When(condition, _):
            yield from _in(condition)
        case _:
            return


def _in(expr: Expr) -> Iterator[str]:
    """Names in an expression."""
    if expr.op == "name":
        yield str(expr.leaf)
    for arg in expr.args:
        yield from _in(arg)


_BANG = Language(
    types={"f32": "float", "i32": "int", "bool": "bool"},
    calls={
        "div": "({0} / {1})",
        "neg": "(-{0})",
        "shl": "shift_left({0}, {1})",
        "shr": "({0} >> {1})",
        "fma": "fmaf({0}, {1}, {2})",
        "sqrt": "sqrtf({0})",
        "abs": "fabsf({0})",
        "round": "rintf({0})",
        "select": "({0} ? {1} : {2})",
        "to_f32": "float({0})",
        "to_i32": "int({0})",
        "as_f32": "as_float({0})",
        "as_i32": "as_int({0})",
        "half": "half_to_float({0})",
        "half_bits": "float_to_half({0})",
        "dot4": "dot4({0}, {1}, {2})",
    },
    declare=lambda kind, name, value, changes: f"{'' if changes else 'const '}{kind} {name} = {value};",
    barrier="",
)

_HEAD = """\
#include <bang.h>

__mlu_func__ float as_float(int bits) {
  union { int i; float f; } both;
  both.i = bits;
  return both.f;
}

__mlu_func__ int as_int(float value) {
  union { int i; float f; } both;
  both.f = value;
  return both.i;
}

__mlu_func__ int shift_left(int value, int count) {
  return int(unsigned(value) << count);
}

// The f16 with these bits, exactly.
__mlu_func__ float half_to_float(int bits) {
  const int sign = shift_left(bits & 0x8000, 16), exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (exponent == 0) { return as_float(sign | as_int(float(mantissa) * 0x1p-24f)); }
  return as_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | mantissa << 13);
}

// The bits of an f32 rounded to f16, to nearest even.
__mlu_func__ int float_to_half(float value) {
  const int bits = as_int(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) { return sign | 0x7e00; }
  const int exponent = (magnitude >> 23) - 112;
  if (exponent > 30) { return sign | 0x7c00; }
  const int lost = exponent > 0 ? 13 : exponent > -11 ? 14 - exponent : 25;
  const int mantissa = (magnitude & 0x7fffff) | (magnitude < 0x800000 ? 0 : 0x800000);
  const int kept = mantissa >> lost, rest = mantissa & ((1 << lost) - 1), middle = 1 << (lost - 1);
  const int up = rest > middle || (rest == middle && (kept & 1));
  return sign | (((exponent > 0 ? exponent - 1 : 0) << 10) + kept + up);
}

// c + the sum of the products of the four int8 in each of two words.
__mlu_func__ int dot4(int a, int b, int c) {
  for (int byte = 0; byte < 32; byte += 8) {
    c += (shift_left(a, 24 - byte) >> 24) * (shift_left(b, 24 - byte) >> 24);
  }
  return c;
}
"""
