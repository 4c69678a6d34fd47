"""A function being written: instructions, structured loops and branches, calls."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from unsay.compiler.codegen.builder.kinds import I32, I64, PTR, literal, suffix
from unsay.compiler.codegen.builder.value import Slot, Value

if TYPE_CHECKING:
    from unsay.compiler.codegen.builder.module import Module


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
        return self.intrinsic(f"llvm.fma.{suffix(a.type)}", a.type, *arguments)

    def substitute(self, name: str, kind: str, *arguments: Value) -> Value:
        """Call what the module has in place of an instruction."""
        write = self.module.substitutes[name]
        parameters = [(argument.type, f"x{place}") for place, argument in enumerate(arguments)]

        def body(f: Function) -> None:
            f.result_value = write(f, *(f[parameter] for _, parameter in parameters))

        full_name = f"soft_{name}_{suffix(arguments[0].type)}"
        self.module.define(full_name, parameters, body, f"{name}, which the target lacks", kind, inline=False)
        return self.call(full_name, kind, *arguments)

    def unary(self, name: str, x: Value) -> Value:
        """A one-argument LLVM intrinsic: roundeven, sqrt, fabs."""
        return self.intrinsic(f"llvm.{name}.{suffix(x.type)}", x.type, x)

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
