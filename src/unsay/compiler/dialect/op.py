"""What a row of the table of operations says (dialect/ops.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import CodeType
from typing import Any, TypeAlias

from unsay.compiler.ir.dims import Dim
from unsay.compiler.ir.types import TensorType

Rule: TypeAlias = Callable[
    [Sequence[TensorType], Mapping[str, Any], Mapping[str, Dim]],
    tuple[TensorType, ...],
]
"""The types of the results from those of the operands, the attributes, and the graph's dimensions."""

Check: TypeAlias = Callable[[Sequence[TensorType], Mapping[str, Any], Sequence[TensorType]], None]
"""Raises IrError unless declared result types fit the operands and attributes."""


class Tuple(Enum):
    """Kinds of attributes that are tuples of numbers: all integers, all floats, or either."""

    INTS = "ints"
    FLOATS = "floats"
    NUMBERS = "numbers"

    def fits(self, kinds: set[type]) -> bool:
        """Whether these are the types of its items; an empty tuple is of any kind."""
        allowed = {Tuple.INTS: {int}, Tuple.FLOATS: {float}, Tuple.NUMBERS: {int, float}}
        return len(kinds) <= 1 and kinds <= allowed[self]


INTS, FLOATS, NUMBERS = Tuple.INTS, Tuple.FLOATS, Tuple.NUMBERS


@dataclass(frozen=True, slots=True)
class Attribute:
    """A required attribute: int, float, str, bool or a Tuple of numbers, and the values allowed where few are.
    `infinite`: a float may be inf or -inf."""

    name: str
    kind: type | Tuple
    choices: tuple[str, ...] = ()
    infinite: bool = False

    @property
    def kind_name(self) -> str:
        """What the kind is called in messages and docs."""
        return self.kind.value if isinstance(self.kind, Tuple) else self.kind.__name__

    def fits(self, value: object) -> bool:
        """Whether the value is of the kind: an int is no float, a bool no int."""
        if isinstance(self.kind, Tuple):
            return isinstance(value, tuple) and self.kind.fits(set(map(type, value)))  # pyright: ignore
        return type(value) is self.kind


class Invariant:
    """An attribute invariant: a Python expression, compiled once."""

    __slots__ = ("_code", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._code: CodeType = compile(text, "<invariant>", "eval")

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Whether the expression is true for these values."""
        return bool(eval(self._code, {"__builtins__": {}}, names))


@dataclass(frozen=True, slots=True)
class Op:
    """One row. An operand `x?` may be left out, with all after it; `x...` stands for one or more. `rule` gives the
    types of the results, or is None where they are declared (weight, reshape); then `check` says what may be declared.
    `in_place`: the operand whose memory the result takes over when lowered. `pure`: may be removed when unused and
    merged when equal. `family`: step (what lowering knows), tensor (what front ends make) or both."""

    name: str
    operands: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    results: tuple[str, ...]
    rule: Rule | None
    doc: str
    attribute_invariants: tuple[Invariant, ...] = ()
    value_invariants: tuple[str, ...] = ()
    in_place: int | None = None
    pure: bool = True
    fused: bool = False
    check: Check | None = None
    family: str = "step"

    @property
    def min_operands(self) -> int:
        """Operands that may not be left out."""
        return sum(not name.endswith("?") for name in self.operands)

    @property
    def max_operands(self) -> float:
        """The most operands there may be."""
        return float("inf") if any(name.endswith("...") for name in self.operands) else len(self.operands)
