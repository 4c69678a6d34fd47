"""A GPU kernel as LLVM IR text: for NVPTX, for AMDGCN, and for a CPU that runs one group at a time.

Variables and lets are allocas, which LLVM turns into registers. The CPU form is there to be executed where no GPU is:
it is the same text but for what a Flavour names, with the lanes of a group in a loop between barriers:

    void kernel(buffers ..., i32 group, i32 row)       for each run of statements without a barrier: for each lane: run
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.builder import literal
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
    has_barrier,
)
from unsay.isa.targets import Target, find_target

_TYPES: dict[Type, str] = {"f32": "float", "i32": "i32", "bool": "i1"}


_DENORMALS = '"denormal-fp-math"="ieee,ieee" "denormal-fp-math-f32"="ieee,ieee"'
"""Kept: part of the contract."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """What differs between targets.

    attributes: text after a kernel's parameters, with {lanes}; dot4: an instruction for operands {a}, {b}, {c}, None to
    write it out; barrier: lines; own_space: the address space of allocas; ending: of the module.
    """

    target: Target
    calling: str
    attributes: str
    lane: str
    group: str
    row: str
    dot4: str | None
    barrier: tuple[str, ...]
    global_space: int = 1
    shared_space: int = 3
    own_space: int = 0
    ending: str = ""

    @property
    def lanes_in_turn(self) -> bool:
        """Whether one thread does the work of all lanes: the CPU form."""
        return not self.barrier


NVPTX = Flavour(
    Target("ptx", "nvptx64-nvidia-cuda", "sm_80", "+ptx80", cpu_flags=(), vector_bytes=0), "ptx_kernel ",
    f'nounwind {_DENORMALS} "nvvm.maxntid"="{{lanes}}"',
    "call i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    "call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
    "call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()",
    "call i32 @llvm.nvvm.idp4a.s.s({a}, {b}, {c})",
    ("call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)",),
)  # fmt: skip

_SDOT4 = "call i32 @llvm.amdgcn.sdot4({a}, {b}, {c}, i1 false)"
_SUDOT4 = "call i32 @llvm.amdgcn.sudot4(i1 true, {a}, i1 true, {b}, {c}, i1 false)"


_CODE_OBJECT_5 = '!llvm.module.flags = !{!0}\n!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
"""LLVM's own choice is 6, which ROCm before 6.3 and older linkers do not know."""


def amdgcn(chip: str) -> Flavour:
    """For one AMD chip: gfx11 and gfx12 name the dot product of four int8 in their own way."""
    return Flavour(
        Target(f"amdgcn-{chip}", "amdgcn-amd-amdhsa", chip, "", cpu_flags=(), vector_bytes=0), "amdgpu_kernel ",
        f'nounwind {_DENORMALS} "amdgpu-flat-work-group-size"="{{lanes}},{{lanes}}"',
        "call i32 @llvm.amdgcn.workitem.id.x()",
        "call i32 @llvm.amdgcn.workgroup.id.x()",
        "call i32 @llvm.amdgcn.workgroup.id.y()",
        _SUDOT4 if chip.startswith(("gfx11", "gfx12")) else _SDOT4,
        ('fence syncscope("workgroup") release', "call void @llvm.amdgcn.s.barrier()",
         'fence syncscope("workgroup") acquire'),
        own_space=5, ending=_CODE_OBJECT_5,
    )  # fmt: skip


CPU = Flavour(
    find_target("avx2"), "", f'nounwind "no-builtins" {_DENORMALS}',
    "load i32, ptr %lane.addr", "add i32 %group, 0", "add i32 %row, 0", None, (), global_space=0, shared_space=0,
)  # fmt: skip

_DECLARATIONS = {
    "llvm.fma.f32": "declare float @llvm.fma.f32(float, float, float)",
    "llvm.sqrt.f32": "declare float @llvm.sqrt.f32(float)",
    "llvm.fabs.f32": "declare float @llvm.fabs.f32(float)",
    "llvm.roundeven.f32": "declare float @llvm.roundeven.f32(float)",
    "llvm.nvvm.read.ptx.sreg.tid.x": "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()",
    "llvm.nvvm.read.ptx.sreg.ctaid.x": "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()",
    "llvm.nvvm.read.ptx.sreg.ctaid.y": "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()",
    "llvm.nvvm.idp4a.s.s": "declare i32 @llvm.nvvm.idp4a.s.s(i32, i32, i32)",
    "llvm.nvvm.barrier.cta.sync.aligned.all": "declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)",
    "llvm.amdgcn.workitem.id.x": "declare i32 @llvm.amdgcn.workitem.id.x()",
    "llvm.amdgcn.workgroup.id.x": "declare i32 @llvm.amdgcn.workgroup.id.x()",
    "llvm.amdgcn.workgroup.id.y": "declare i32 @llvm.amdgcn.workgroup.id.y()",
    "llvm.amdgcn.s.barrier": "declare void @llvm.amdgcn.s.barrier()",
    "llvm.amdgcn.sdot4": "declare i32 @llvm.amdgcn.sdot4(i32, i32, i32, i1 immarg)",
    "llvm.amdgcn.sudot4": "declare i32 @llvm.amdgcn.sudot4(i1 immarg, i32, i1 immarg, i32, i32, i1 immarg)",
}


def llvm_module(kernels: Sequence[Kernel], flavour: Flavour) -> str:
    """The kernels as one module."""
    texts = [_Writer(kernel, flavour).text() for kernel in kernels]
    used = [line for name, line in _DECLARATIONS.items() if any(f"@{name}(" in text for text in texts)]
    return "\n".join([f'target triple = "{flavour.target.triple}"', "", *used, "", *texts, flavour.ending])


_INSTRUCTIONS = {
    ("add", "f32"): "fadd {0}, {1}", ("add", "i32"): "add {0}, {1}",
    ("sub", "f32"): "fsub {0}, {1}", ("sub", "i32"): "sub {0}, {1}",
    ("mul", "f32"): "fmul {0}, {1}", ("mul", "i32"): "mul {0}, {1}",
    ("div", "f32"): "fdiv {0}, {1}", ("quotient", "i32"): "udiv {0}, {1}", ("remainder", "i32"): "urem {0}, {1}",
    ("and", "i32"): "and {0}, {1}", ("or", "i32"): "or {0}, {1}",
    ("shl", "i32"): "shl {0}, {1}", ("shr", "i32"): "ashr {0}, {1}",
    ("less", "f32"): "fcmp olt {0}, {1}", ("less", "i32"): "icmp slt {0}, {1}", ("equal", "i32"): "icmp eq {0}, {1}",
    ("neg", "f32"): "fneg {0}",
}  # fmt: skip
"""By operation and the type of its first operand; {0} with its type, {1} without."""

_CALLS = {
    "fma": "call float @llvm.fma.f32({0}, {1}, {2})",
    "sqrt": "call float @llvm.sqrt.f32({0})",
    "abs": "call float @llvm.fabs.f32({0})",
    "round": "call float @llvm.roundeven.f32({0})",
    "select": "select {0}, {1}, {2}",
    "to_f32": "sitofp {0} to float",
    "to_i32": "fptosi {0} to i32",
    "as_f32": "bitcast {0} to float",
    "as_i32": "bitcast {0} to i32",
}
"""All operands with their types."""


class _Writer:
    """One kernel. uniform: variables that all lanes of the CPU form share, those of loops with a barrier inside."""

    def __init__(self, kernel: Kernel, flavour: Flavour) -> None:
        self.kernel = kernel
        self.flavour = flavour
        self.entry: list[str] = []
        self.body: list[str] = []
        self.slots: dict[str, str] = {}
        self.uniform: set[str] = set()
        self.num_values = 0
        self.num_labels = 0

    def text(self) -> str:
        """Its arrays and definition."""
        flavour, kernel = self.flavour, self.kernel
        if flavour.lanes_in_turn:
            self.entry.append("  %lane.addr = alloca i32")
            self.entry.append("  store i32 0, ptr %lane.addr")
        self._statements(kernel.body, in_lane=not flavour.lanes_in_turn)
        parameters = [f"{self._pointer(flavour.global_space)} %{buffer.name}" for buffer in kernel.buffers]
        parameters += ["i32 %group", "i32 %row"] if flavour.lanes_in_turn else []
        head = f"define {flavour.calling}void @{kernel.name}({', '.join(parameters)}) "
        attributes = flavour.attributes.replace("{lanes}", str(kernel.lanes))
        arrays = [f"{self._shared(array)} = {self._array(array)}" for array in kernel.shared_arrays]
        if flavour.lanes_in_turn:
            self.entry.extend(f"  {array}" for array in arrays)
            arrays = []
        lines = [f"; {kernel.doc}", *arrays, f"{head}{attributes} {{", *self.entry, *self.body, "  ret void", "}", ""]
        return "\n".join(lines)

    def _shared(self, array: Memory) -> str:
        """The address of a shared array."""
        return f"%{array.name}" if self.flavour.lanes_in_turn else f"@{self.kernel.name}.{array.name}"

    def _array(self, array: Memory) -> str:
        """What makes a shared array: of the group's memory on a GPU, of the stack on a CPU."""
        kind = f"[{array.length} x {_TYPES[array.type]}]"
        if self.flavour.lanes_in_turn:
            return f"alloca {kind}, align 16"
        return f"internal addrspace({self.flavour.shared_space}) global {kind} undef, align 16"

    def _statements(self, statements: Sequence[Statement], in_lane: bool) -> None:
        if in_lane:
            for statement in statements:
                self._statement(statement)
            return
        run: list[Statement] = []
        for statement in statements:
            if not has_barrier([statement]):
                run.append(statement)
                continue
            self._all_lanes(run)
            run = []
            if isinstance(statement, Loop):
                self._loop(statement, in_lane=False)
        self._all_lanes(run)

    def _all_lanes(self, statements: Sequence[Statement]) -> None:
        """The CPU form: each lane does these before the next one does."""
        if statements:
            end = str(self.kernel.lanes)
            self._counted("%lane.addr", "0", lambda: end, 1, lambda: self._statements(statements, in_lane=True))
            self.body.append("  store i32 0, ptr %lane.addr")

    def _statement(self, statement: Statement) -> None:
        match statement:
            case Declare(name, value, _):
                self.body.append(f"  store {self._typed(value)}, {self._slot(name, value.type)}")
            case Assign(name, value):
                self.body.append(f"  store {self._typed(value)}, {self._slot(name, value.type)}")
            case Store(memory, index, value):
                stored = self._typed(value)
                self.body.append(f"  store {stored}, {self._element(memory, index)}")
            case Loop():
                self._loop(statement, in_lane=True)
            case When(condition, body):
                self._when(condition, body)
            case Barrier():
                self.body.extend(f"  {line}" for line in self.flavour.barrier)

    def _loop(self, loop: Loop, in_lane: bool) -> None:
        if not in_lane:
            self.uniform.add(loop.name)
        address = self._slot(loop.name, "i32").split()[-1]
        begin = self._value(loop.begin)
        self._counted(
            address, begin, lambda: self._value(loop.end), loop.step, lambda: self._statements(loop.body, in_lane)
        )

    def _counted(self, address: str, begin: str, end: Callable[[], str], step: int, body: Callable[[], None]) -> None:
        """for (*address = begin; *address < end(); *address += step) body()."""
        pointer = f"{self._pointer(self.flavour.own_space)} {address}"
        label = self._label("loop")
        self.body += [f"  store i32 {begin}, {pointer}", f"  br label %{label}.head", f"{label}.head:"]
        index = self._emit(f"load i32, {pointer}")
        more = self._emit(f"icmp slt i32 {index}, {end()}")
        self.body += [f"  br i1 {more}, label %{label}.body, label %{label}.exit", f"{label}.body:"]
        body()
        following = self._emit(f"add nsw i32 {self._emit(f'load i32, {pointer}')}, {step}")
        self.body += [f"  store i32 {following}, {pointer}", f"  br label %{label}.head", f"{label}.exit:"]

    def _when(self, condition: Expr, body: Sequence[Statement]) -> None:
        label = self._label("if")
        self.body.append(f"  br i1 {self._value(condition)}, label %{label}.then, label %{label}.end")
        self.body.append(f"{label}.then:")
        self._statements(body, in_lane=True)
        self.body += [f"  br label %{label}.end", f"{label}.end:"]

    def _typed(self, expr: Expr) -> str:
        return f"{_TYPES[expr.type]} {self._value(expr)}"

    def _value(self, expr: Expr) -> str:
        """The operand that holds the expression's value."""
        kind = _TYPES[expr.type]
        if expr.op == "constant":
            assert not isinstance(expr.leaf, str), expr
            return literal(kind, expr.leaf)
        if expr.op == "name":
            return self._emit(f"load {kind}, {self._slot(str(expr.leaf), expr.type)}")
        if expr.op == "load":
            assert expr.memory is not None, expr
            return self._emit(f"load {kind}, {self._element(expr.memory, expr.args[0])}")
        if expr.op in ("lane", "group", "row"):
            return self._emit(
                {"lane": self.flavour.lane, "group": self.flavour.group, "row": self.flavour.row}[expr.op]
            )
        return self._operation(expr)

    def _operation(self, expr: Expr) -> str:
        values = [self._value(arg) for arg in expr.args]
        typed = [f"{_TYPES[arg.type]} {value}" for arg, value in zip(expr.args, values, strict=True)]
        if expr.op == "half":
            bits = self._emit(f"bitcast i16 {self._emit(f'trunc {typed[0]} to i16')} to half")
            return self._emit(f"fpext half {bits} to float")
        if expr.op == "half_bits":
            bits = self._emit(f"bitcast half {self._emit(f'fptrunc {typed[0]} to half')} to i16")
            return self._emit(f"zext i16 {bits} to i32")
        if expr.op == "dot4":
            return self._dot4(typed, values[2])
        if expr.op in _CALLS:
            return self._emit(_CALLS[expr.op].format(*typed))
        return self._emit(_INSTRUCTIONS[expr.op, expr.args[0].type].format(typed[0], *values[1:]))

    def _dot4(self, typed: Sequence[str], total: str) -> str:
        if self.flavour.dot4 is not None:
            return self._emit(self.flavour.dot4.format(a=typed[0], b=typed[1], c=typed[2]))
        narrow = [self._emit(f"bitcast {word} to <4 x i8>") for word in typed[:2]]
        wide = [self._emit(f"sext <4 x i8> {value} to <4 x i32>") for value in narrow]
        product = self._emit(f"mul <4 x i32> {wide[0]}, {wide[1]}")
        for lane in range(4):
            total = self._emit(f"add i32 {self._emit(f'extractelement <4 x i32> {product}, i32 {lane}')}, {total}")
        return total

    def _element(self, memory: Memory, index: Expr) -> str:
        """`ptr %element` of an array."""
        shared = memory.length is not None
        space = self.flavour.shared_space if shared else self.flavour.global_space
        base = self._shared(memory) if shared else f"%{memory.name}"
        pointer = self._pointer(space)
        offset = self._value(index)
        element = self._emit(f"getelementptr {_TYPES[memory.type]}, {pointer} {base}, i32 {offset}")
        return f"{pointer} {element}"

    def _slot(self, name: str, kind: Type) -> str:
        """`ptr %address` of a variable; in the CPU form the lane's own, one of an array."""
        each_lane = self.flavour.lanes_in_turn and name not in self.uniform
        pointer = self._pointer(self.flavour.own_space)
        if name not in self.slots:
            self.slots[name] = f"%{name}.addr"
            count = f"[{self.kernel.lanes} x {_TYPES[kind]}]" if each_lane else _TYPES[kind]
            space = f", addrspace({self.flavour.own_space})" if self.flavour.own_space else ""
            self.entry.append(f"  %{name}.addr = alloca {count}{space}")
        if not each_lane:
            return f"{pointer} %{name}.addr"
        lane = self._emit("load i32, ptr %lane.addr")
        return f"{pointer} {self._emit(f'getelementptr {_TYPES[kind]}, {pointer} %{name}.addr, i32 {lane}')}"

    @staticmethod
    def _pointer(space: int) -> str:
        return f"ptr addrspace({space})" if space else "ptr"

    def _emit(self, instruction: str) -> str:
        self.num_values += 1
        self.body.append(f"  %v{self.num_values} = {instruction}")
        return f"%v{self.num_values}"

    def _label(self, name: str) -> str:
        self.num_labels += 1
        return f"{name}{self.num_labels}"
