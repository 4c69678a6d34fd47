"""The language GPU kernels are written in: what one lane of a group does. Printers make LLVM IR, WGSL and MSL of it.

    k = Kernel("scale_by", lanes=64, doc="y[i] = x[i] * 3")
    x, y = k.buffer("x", F32), k.buffer("y", F32, writes=True)
    i = k.let("i", k.group * 64 + k.lane)
    with k.when(i < 1000):
        y[i] = x[i] * 3.0

A kernel runs on a grid of groups, `k.group` along x and `k.row` along y; `k.lane` counts 0..lanes-1 within a group.
Lanes of a group share `shared` arrays, which `barrier` orders. Arithmetic is that of docs/numerics.md: f32 rounded to
nearest even at each step, nothing fused unless written `fma`, i32 wrapping. Every printer keeps the order written.

Rules, asserted where it is cheap:
    1. A barrier stands where all lanes of a group arrive: at top level, or in a loop whose bounds are the same for all.
    2. What crosses a barrier does so in a `let`, a `var` or a `shared` array; a global element has one writer.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Type: TypeAlias = Literal["f32", "i32", "bool"]
F32: Type = "f32"
I32: Type = "i32"
BOOL: Type = "bool"


_NEUTRAL = {"add": 0, "sub": 0, "mul": 1, "quotient": 1, "shl": 0, "shr": 0}
"""Integers on the right that change nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A value of one lane: `op` of `args`. Without any: a `constant`, a `name`, or a place: `lane`, `group`, `row`."""

    type: Type
    op: str
    args: tuple[Expr, ...] = ()
    leaf: int | float | str = 0
    memory: Memory | None = None

    def __add__(self, other: Expr | float) -> Expr:
        return self._same("add", other)

    def __sub__(self, other: Expr | float) -> Expr:
        return self._same("sub", other)

    def __mul__(self, other: Expr | float) -> Expr:
        return self._same("mul", other)

    def __truediv__(self, other: Expr | float) -> Expr:
        assert self.type == F32, self
        return self._same("div", other)

    def __floordiv__(self, other: Expr | int) -> Expr:
        """Of integers that are not negative."""
        return self._integer("quotient", other)

    def __mod__(self, other: Expr | int) -> Expr:
        """Of integers that are not negative."""
        return self._integer("remainder", other)

    def __and__(self, other: Expr | int) -> Expr:
        return self._integer("and", other)

    def __or__(self, other: Expr | int) -> Expr:
        return self._integer("or", other)

    def __lshift__(self, other: Expr | int) -> Expr:
        return self._integer("shl", other)

    def __rshift__(self, other: Expr | int) -> Expr:
        """Arithmetic: the sign comes in from the left."""
        return self._integer("shr", other)

    def __neg__(self) -> Expr:
        return Expr(self.type, "neg", (self,))

    def __lt__(self, other: Expr | float) -> Expr:
        return Expr(BOOL, "less", (self, constant(self.type, other)))

    def __gt__(self, other: Expr | float) -> Expr:
        return Expr(BOOL, "less", (constant(self.type, other), self))

    def equals(self, other: Expr | int) -> Expr:
        """Whether two integers are equal."""
        return Expr(BOOL, "equal", (self, constant(I32, other)))

    def _same(self, op: str, other: Expr | float) -> Expr:
        if self.type == I32 and other == _NEUTRAL.get(op):
            return self
        right = constant(self.type, other)
        assert self.type == right.type, (self, op, right)
        return Expr(self.type, op, (self, right))

    def _integer(self, op: str, other: Expr | int) -> Expr:
        assert self.type == I32, self
        return self._same(op, other)


def constant(kind: Type, value: Expr | float) -> Expr:
    """The value itself, or a number as a constant of that type."""
    return value if isinstance(value, Expr) else Expr(kind, "constant", (), value)


def fma(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    """a * b + c, rounded once."""
    return Expr(F32, "fma", (a, constant(F32, b), constant(F32, c)))


def sqrt(x: Expr) -> Expr:
    """IEEE square root."""
    return Expr(F32, "sqrt", (x,))


def absolute(x: Expr) -> Expr:
    """|x| of an f32."""
    return Expr(F32, "abs", (x,))


def round_even(x: Expr) -> Expr:
    """The nearest whole f32, ties to even."""
    return Expr(F32, "round", (x,))


def to_f32(x: Expr) -> Expr:
    """An integer, rounded to nearest even."""
    return Expr(F32, "to_f32", (x,))


def to_i32(x: Expr) -> Expr:
    """A whole f32 as an integer."""
    return Expr(I32, "to_i32", (x,))


def as_f32(x: Expr) -> Expr:
    """The f32 with these bits."""
    return Expr(F32, "as_f32", (x,))


def as_i32(x: Expr) -> Expr:
    """The bits of an f32."""
    return Expr(I32, "as_i32", (x,))


def half(word: Expr, index: Expr | int) -> Expr:
    """The f16 in the low (index 0) or high (1) half of a word, exactly, as f32."""
    return Expr(F32, "half", ((word >> constant(I32, index) * 16) & 0xFFFF,))


def half_bits(x: Expr) -> Expr:
    """The bits, 0..65535, of an f32 rounded to f16."""
    return Expr(I32, "half_bits", (x,))


def dot4(a: Expr, b: Expr, c: Expr | int) -> Expr:
    """c + the sum of the products of the four int8 in each of two words."""
    return Expr(I32, "dot4", (a, b, constant(I32, c)))


def choose(condition: Expr, yes: Expr | float, no: Expr) -> Expr:
    """yes where the condition holds; both are computed."""
    return Expr(no.type, "select", (condition, constant(no.type, yes), no))


@dataclass(frozen=True, slots=True)
class Memory:
    """An array of f32 or i32: in global memory (a buffer, of any length) or shared by a group (`length` elements)."""

    kernel: Kernel = field(repr=False)
    name: str
    type: Type
    writes: bool
    length: int | None

    def __getitem__(self, index: Expr | int) -> Expr:
        return Expr(self.type, "load", (constant(I32, index),), memory=self)

    def __setitem__(self, index: Expr | int, value: Expr) -> None:
        assert self.writes and value.type == self.type, (self, value)
        self.kernel.add(Store(self, constant(I32, index), value))


@dataclass(frozen=True, slots=True)
class Declare:
    """A named value; with `changes`, a variable."""

    name: str
    value: Expr
    changes: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """Change a variable."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Write an element."""

    memory: Memory
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Loop:
    """for (name = begin; name < end; name += step)."""

    name: str
    begin: Expr
    end: Expr
    step: int
    body: list[Statement]


@dataclass(frozen=True, slots=True)
class When:
    """if (condition)."""

    condition: Expr
    body: list[Statement]


@dataclass(frozen=True, slots=True)
class Barrier:
    """All lanes of the group arrive, and see what the others wrote."""


Statement: TypeAlias = Declare | Assign | Store | Loop | When | Barrier


def has_barrier(statements: Sequence[Statement]) -> bool:
    """Whether lanes meet somewhere in these."""
    return any(isinstance(s, Barrier) or (isinstance(s, Loop | When) and has_barrier(s.body)) for s in statements)


@dataclass(frozen=True, slots=True)
class Var:
    """A variable of each lane's own."""

    kernel: Kernel
    name: str
    type: Type

    def get(self) -> Expr:
        """Its value now: read where the expression is used."""
        return Expr(self.type, "name", (), self.name)

    def set(self, value: Expr) -> None:
        """Change it."""
        assert value.type == self.type, (self, value)
        self.kernel.add(Assign(self.name, value))


_RESERVED: tuple[str, ...] = ("lane", "group", "row", "groups", "rows", "unit")
"""Names that printers use themselves."""


class Kernel:
    """A kernel being written."""

    def __init__(self, name: str, lanes: int, doc: str) -> None:
        self.name = name
        self.lanes = lanes
        self.doc = doc
        self.buffers: list[Memory] = []
        self.shared_arrays: list[Memory] = []
        self.body: list[Statement] = []
        self._open = [self.body]
        self._names: dict[str, int] = dict.fromkeys(_RESERVED, 1)

    lane = Expr(I32, "lane")
    group = Expr(I32, "group")
    row = Expr(I32, "row")

    def buffer(self, name: str, kind: Type, *, writes: bool = False) -> Memory:
        """A parameter: an array in global memory, bound in the order of these calls."""
        self.buffers.append(Memory(self, self._unique(name), kind, writes, None))
        return self.buffers[-1]

    def shared(self, name: str, kind: Type, length: int) -> Memory:
        """An array of the group's own, not cleared."""
        self.shared_arrays.append(Memory(self, self._unique(name), kind, True, length))
        return self.shared_arrays[-1]

    def let(self, name: str, value: Expr) -> Expr:
        """The value, computed here and now."""
        unique = self._unique(name)
        self.add(Declare(unique, value, changes=False))
        return Expr(value.type, "name", (), unique)

    def var(self, name: str, kind: Type, initial: Expr | float) -> Var:
        """A variable."""
        unique = self._unique(name)
        self.add(Declare(unique, constant(kind, initial), changes=True))
        return Var(self, unique, kind)

    @contextmanager
    def loop(self, name: str, begin: Expr | int, end: Expr | int, step: int = 1) -> Generator[Expr]:
        """for (i32 name = begin; name < end; name += step)."""
        unique = self._unique(name)
        body: list[Statement] = []
        self.add(Loop(unique, constant(I32, begin), constant(I32, end), step, body))
        with self._inside(body):
            yield Expr(I32, "name", (), unique)

    @contextmanager
    def when(self, condition: Expr) -> Generator[None]:
        """if (condition); lanes do not meet inside."""
        body: list[Statement] = []
        self.add(When(condition, body))
        with self._inside(body):
            yield
        assert not has_barrier(body), "rule 1"

    def barrier(self) -> None:
        """All lanes of the group arrive here before any goes on."""
        self.add(Barrier())

    def add(self, statement: Statement) -> None:
        """Append a statement where the kernel is being written."""
        self._open[-1].append(statement)

    @contextmanager
    def _inside(self, body: list[Statement]) -> Generator[None]:
        self._open.append(body)
        yield
        self._open.pop()

    def _unique(self, name: str) -> str:
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"
