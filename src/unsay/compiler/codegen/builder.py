"""A builder for LLVM IR text: functions, structured loops, typed values with operators. Knows nothing of LLVM itself.

    function = module.function("sum", [("ptr", "x"), ("i64", "n")])
    total = function.slot(F32X16, 0.0)
    with function.loop("i", 0, function["n"], step=16) as i:
        total.set(total.get() + function.load(F32X16, function["x"].at(i * 4)))

Every value is a named SSA value; a Slot is an alloca, which LLVM turns into registers. Addresses count bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

F64, F32, F16, I8, I16, I32, I64, PTR, BOOL = "double", "float", "half", "i8", "i16", "i32", "i64", "ptr", "i1"
F32X16, I32X16, F16X16 = "<16 x float>", "<16 x i32>", "<16 x half>"


def vector(element: str, lanes: int) -> str:
    """The vector type."""
    return f"<{lanes} x {element}>"


def element_type(kind: str) -> str:
    """float of <16 x float>; a scalar type is its own element."""
    return kind.rstrip(">").split(" x ")[1] if kind.startswith("<") else kind


def with_element(kind: str, element: str) -> str:
    """<16 x i32> from <16 x float> and i32; i32 from float and i32."""
    return f"<{kind[1:].split(' x ')[0]} x {element}>" if kind.startswith("<") else element


def literal(kind: str, number: float) -> str:
    """Text of a constant; floats are rounded to their type and written exactly, as LLVM wants: as bits of a double."""
    element = element_type(kind)
    if element in (F32, F64):
        rounded = struct.unpack("<f", struct.pack("<f", number))[0] if element == F32 else number
        text = f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    else:
        text = str(int(number))
    return f"splat ({element} {text})" if kind.startswith("<") else text


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value (or constant) of a function; operators emit the instruction for its type."""

    function: Function
    type: str
    text: str

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    def __add__(self, other: Value | float) -> Value:
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("fsub", "sub", other)

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", "", other)

    def __floordiv__(self, other: Value | int) -> Value:
        return self._binary("", "udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        return self._binary("", "urem", other)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("", "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("", "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("", "xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("", "shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        return self._binary("", "lshr", other)

    def __neg__(self) -> Value:
        return self.function.emit(self.type, f"fneg {self}")

    def at(self, offset: Value | int) -> Value:
        """The address `offset` bytes on."""
        assert self.type == PTR, self
        moved = self.function.operand(I64, offset)
        return self.function.emit(PTR, f"getelementptr i8, {self}, {moved}")

    def compare(self, condition: str, other: Value | float) -> Value:
        """`fcmp` or `icmp` with LLVM's name of the condition."""
        right = self.function.operand(self.type, other)
        name = "fcmp" if element_type(self.type) in (F32, F64) else "icmp"
        return self.function.emit(with_element(self.type, BOOL), f"{name} {condition} {self}, {right.text}")

    def cast(self, how: str, kind: str) -> Value:
        """A conversion, by LLVM's name: sext, zext, trunc, sitofp, fptosi, fpext, fptrunc, bitcast."""
        if F16 in (element_type(self.type), element_type(kind)) and how in self.function.module.substitutes:
            return self._substituted_half(how, kind)
        return self.function.emit(kind, f"{how} {self} to {kind}")

    def _substituted_half(self, how: str, kind: str) -> Value:
        """Halves go in and come out as i16: without instructions for them, they are no arguments either."""
        if how == "fpext":
            bits = self.cast("bitcast", with_element(self.type, I16))
            return self.function.substitute(how, kind, bits)
        return self.function.substitute(how, with_element(kind, I16), self).cast("bitcast", kind)

    def splat(self, lanes: int) -> Value:
        """A vector with this scalar in every lane."""
        kind = vector(self.type, lanes)
        first = self.function.emit(kind, f"insertelement {kind} poison, {self}, i32 0")
        return first.shuffle([0] * lanes)

    def shuffle(self, lanes: Sequence[int]) -> Value:
        """The lanes named, of this vector."""
        kind = vector(element_type(self.type), len(lanes))
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        return self.function.emit(kind, f"shufflevector {self}, {self.type} poison, <{len(lanes)} x i32> <{mask}>")

    def beside(self, other: Value) -> Value:
        """The lanes of this vector, then those of the other."""
        lanes = 2 * int(self.type[1:].split(" x ")[0])
        mask = ", ".join(f"i32 {lane}" for lane in range(lanes))
        kind = vector(element_type(self.type), lanes)
        return self.function.emit(kind, f"shufflevector {self}, {other}, <{lanes} x i32> <{mask}>")

    def lane(self, index: int) -> Value:
        """One lane, as a scalar."""
        return self.function.emit(element_type(self.type), f"extractelement {self}, i32 {index}")

    def _binary(self, float_name: str, int_name: str, other: Value | float) -> Value:
        name = float_name if element_type(self.type) in (F32, F64) else int_name
        assert name, (self, float_name, int_name)
        right = self.function.operand(self.type, other)
        return self.function.emit(self.type, f"{name} {self}, {right.text}")


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable: what `set` stored last is what `get` loads."""

    address: Value
    type: str

    def get(self) -> Value:
        """The value now."""
        return self.address.function.load(self.type, self.address, align=0)

    def set(self, value: Value | float) -> None:
        """Change it."""
        function = self.address.function
        function.store(function.operand(self.type, value), self.address, align=0)


class Function:
    """A function being written; `function["name"]` is a parameter, `result_value` what it gives back at its end."""

    def __init__(self, module: Module, name: str, parameters: Sequence[tuple[str, str]], result: str) -> None:
        self.module = module
        self.name = name
        self.result = result
        self._parameters = {text: Value(self, kind, f"%{text}") for kind, text in parameters}
        self._entry: list[str] = []
        self._body: list[str] = []
        self._labels: dict[str, int] = {}
        self._num_values = 0
        self._block = "body"
        self.result_value: Value | None = None

    def __getitem__(self, name: str) -> Value:
        return self._parameters[name]

    @property
    def parameters(self) -> list[Value]:
        """All of them, in order."""
        return list(self._parameters.values())

    def constant(self, kind: str, number: float) -> Value:
        """A constant; of a vector type, in every lane."""
        return Value(self, kind, literal(kind, number))

    def operand(self, kind: str, value: Value | float) -> Value:
        """`value` itself if it is of type `kind`, or the constant."""
        if isinstance(value, Value):
            assert value.type == kind, (value, kind)
            return value
        return self.constant(kind, value)

    def emit(self, kind: str, instruction: str) -> Value:
        """Append an instruction that has a result."""
        self._num_values += 1
        value = Value(self, kind, f"%v{self._num_values}")
        self._body.append(f"  {value.text} = {instruction}")
        return value

    def load(self, kind: str, address: Value, align: int = 1) -> Value:
        """Load; align 0 is the type's own alignment."""
        return self.emit(kind, f"load {kind}, {address}" + (f", align {align}" if align else ""))

    def store(self, value: Value, address: Value, align: int = 1) -> None:
        """Store; align 0 is the type's own alignment."""
        self._body.append(f"  store {value}, {address}" + (f", align {align}" if align else ""))

    def slot(self, kind: str, initial: Value | float) -> Slot:
        """A new variable."""
        slot = Slot(self._alloca(kind), kind)
        slot.set(initial)
        return slot

    def buffer(self, num_bytes: int) -> Value:
        """Address of stack memory, 64-byte aligned, not cleared."""
        return self._alloca(f"[{num_bytes} x i8], align 64")

    def intrinsic(self, name: str, kind: str, *arguments: Value) -> Value:
        """Call an LLVM intrinsic, declared as used."""
        self.module.declare(name, kind, [argument.type for argument in arguments])
        return self.call(name, kind, *arguments)

    def call(self, name: str, kind: str, *arguments: Value) -> Value:
        """Call a function with a result."""
        return self.emit(kind, f"call {kind} @{name}({', '.join(map(str, arguments))})")

    def run(self, name: str, *arguments: Value) -> None:
        """Call a function without a result."""
        self._body.append(f"  call void @{name}({', '.join(map(str, arguments))})")

    def select(self, condition: Value, yes: Value, no: Value | float) -> Value:
        """Lane by lane: yes where the condition holds."""
        return self.emit(yes.type, f"select {condition}, {yes}, {self.operand(yes.type, no)}")

    def shifted_right(self, value: Value, by: int) -> Value:
        """An arithmetic shift: the sign comes in from the left."""
        return self.emit(value.type, f"ashr {value}, {self.constant(value.type, by).text}")

    def smaller(self, left: Value, right: Value | int) -> Value:
        """The smaller of two signed integers."""
        return self.select(left.compare("slt", right), left, right)

    def larger(self, left: Value, right: Value | int) -> Value:
        """The larger of two signed integers."""
        return self.select(left.compare("sgt", right), left, right)

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once."""
        arguments = (a, self.operand(a.type, b), self.operand(a.type, c))
        if "fma" in self.module.substitutes:
            return self.substitute("fma", a.type, *arguments)
        return self.intrinsic(f"llvm.fma.{_suffix(a.type)}", a.type, *arguments)

    def substitute(self, name: str, kind: str, *arguments: Value) -> Value:
        """Call what the module has in place of an instruction."""
        write = self.module.substitutes[name]
        parameters = [(argument.type, f"x{place}") for place, argument in enumerate(arguments)]

        def body(f: Function) -> None:
            f.result_value = write(f, *(f[parameter] for _, parameter in parameters))

        full_name = f"soft_{name}_{_suffix(arguments[0].type)}"
        self.module.define(full_name, parameters, body, f"{name}, which the target lacks", kind, inline=False)
        return self.call(full_name, kind, *arguments)

    def unary(self, name: str, x: Value) -> Value:
        """A one-argument LLVM intrinsic: roundeven, sqrt, fabs."""
        return self.intrinsic(f"llvm.{name}.{_suffix(x.type)}", x.type, x)

    def prefetch(self, address: Value) -> None:
        """Bring the cache line near; any address is allowed."""
        self.module.declare("llvm.prefetch.p0", "void", [PTR, I32, I32, I32])
        self.run("llvm.prefetch.p0", address, *(self.constant(I32, number) for number in (0, 3, 1)))

    @contextmanager
    def loop(self, name: str, begin: Value | int, end: Value | int, step: Value | int = 1) -> Generator[Value]:
        """for (i64 name = begin; name < end; name += step)."""
        head, body, latch, leave = (f"{self._label(name)}.{part}" for part in ("head", "body", "latch", "exit"))
        start, stop, stride = (self.operand(I64, value) for value in (begin, end, step))
        index = Value(self, I64, f"%{head}.i")
        before = self._block
        self._body.append(f"  br label %{head}")
        self._open(head)
        self._body.append(f"  {index.text} = phi i64 [ {start.text}, %{before} ], [ {index.text}.next, %{latch} ]")
        self._body.append(f"  {index.text}.more = icmp slt {index}, {stop.text}")
        self._body.append(f"  br i1 {index.text}.more, label %{body}, label %{leave}")
        self._open(body)
        yield index
        self._body.append(f"  br label %{latch}")
        self._open(latch)
        self._body.append(f"  {index.text}.next = add nsw {index}, {stride.text}")
        self._body.append(f"  br label %{head}")
        self._open(leave)

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        """if (condition)."""
        label = self._label("if")
        self._body.append(f"  br {condition}, label %{label}.then, label %{label}.end")
        self._open(f"{label}.then")
        yield
        self._body.append(f"  br label %{label}.end")
        self._open(f"{label}.end")

    def return_if(self, condition: Value, value: str = "void") -> None:
        """Leave the function here if the condition holds."""
        label = self._label("leave")
        self._body.append(f"  br {condition}, label %{label}.now, label %{label}.on")
        self._open(f"{label}.now")
        self._body.append(f"  ret {value}")
        self._open(f"{label}.on")

    def comment(self, text: str) -> None:
        """A comment line in the emitted text."""
        self._body.append(f"  ; {text}")

    def text(self, attributes: str) -> str:
        """The definition."""
        ending = "void" if self.result_value is None else str(self.result_value)
        parameters = ", ".join(map(str, self._parameters.values()))
        lines = [
            f"define {self.result} @{self.name}({parameters}) {attributes} {{",
            "entry:",
            *self._entry,
            "  br label %body",
            "body:",
            *self._body,
            f"  ret {ending}",
            "}",
        ]
        return "\n".join(lines)

    def _alloca(self, kind: str) -> Value:
        self._num_values += 1
        value = Value(self, PTR, f"%v{self._num_values}")
        self._entry.append(f"  {value.text} = alloca {kind}")
        return value

    def _label(self, name: str) -> str:
        count = self._labels[name] = self._labels.get(name, 0) + 1
        return f"{name}{count}"

    def _open(self, label: str) -> None:
        self._body.append(f"{label}:")
        self._block = label


class Module:
    """Functions by name; each is written once, however often it is asked for.

    substitutes: what to write for an instruction the target lacks (fma, and fpext and fptrunc of halves, which it sees
    as i16).
    """

    def __init__(self, header: str, substitutes: Mapping[str, Callable[..., Value]] | None = None) -> None:
        self._header = header
        self.substitutes = substitutes or {}
        self._declarations: dict[str, str] = {}
        self._definitions: dict[str, str] = {}

    def declare(self, name: str, kind: str, parameters: Sequence[str]) -> None:
        """An intrinsic of LLVM."""
        self._declarations[name] = f"declare {kind} @{name}({', '.join(parameters)})"

    def add_text(self, name: str, definition: str) -> None:
        """A function given as text."""
        self._definitions.setdefault(name, definition)

    def define(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        write: Callable[[Function], None],
        doc: str,
        result: str = "void",
        linkage: str = "internal ",
        inline: bool = True,
    ) -> str:
        """A function written by `write`, unless there is one of this name already; gives back the name."""
        if name not in self._definitions:
            function = Function(self, name, parameters, linkage + result)
            self._definitions[name] = ""
            write(function)
            comment = "".join(f"; {line}\n" for line in doc.splitlines())
            self._definitions[name] = comment + function.text("#0" if inline else "noinline #0")
        return name

    def text(self) -> str:
        """The whole module."""
        parts = [self._header, *self._declarations.values(), "", *self._definitions.values()]
        return "\n\n".join(parts) + "\n"


def _suffix(kind: str) -> str:
    """v16f32 of <16 x float>, f32 of float."""
    short = {F32: "f32", F16: "f16"}.get(element_type(kind), element_type(kind))
    return f"v{kind[1:].split(' x ')[0]}{short}" if kind.startswith("<") else short
