"""What rewrites ask about the values they match, and how they keep remarks of passes before them."""

from __future__ import annotations

from unsay.compiler.dialect.sema import DEVICE
from unsay.compiler.dialect.verifier import REMARK
from unsay.compiler.ir.core import AttributeValue, Operation, Value


def made_by(value: Value, kind: str) -> Operation | None:
    """The operation of this kind that made the value, if it did and nothing else reads the value."""
    return value.producer if value.producer.kind == kind and len(value.uses) == 1 else None


def from_kind(value: Value, kind: str) -> Operation | None:
    """The operation of this kind that made the value, whoever else reads it."""
    return value.producer if value.producer.kind == kind else None


def addends(operation: Operation, kind: str) -> tuple[Value, Operation] | None:
    """For a commutative operation: (the other operand, the operation of this kind that made one of them)."""
    a, b = operation.operands
    for other, value in ((a, b), (b, a)):
        made = made_by(value, kind)
        if made is not None and other is not value:
            return other, made
    return None


def number(value: Value) -> int | float | None:
    """The one number that all elements of a constant are; None for any other value."""
    if value.producer.kind != "constant":
        return None
    elements = value.producer.attributes["value"]
    assert isinstance(elements, tuple) and elements, value
    return elements[0] if len(set(elements)) == 1 else None


def with_number(operation: Operation) -> tuple[Value, int | float] | None:
    """For a commutative operation: (one operand, the number the other is)."""
    a, b = operation.operands
    for x, constant in ((a, b), (b, a)):
        given = number(constant)
        if given is not None:
            return x, given
    return None


def remarks(operation: Operation) -> dict[str, AttributeValue]:
    """Its remarks, for the operation that takes its place."""
    return {name: value for name, value in operation.attributes.items() if name.startswith(REMARK)}


def run_together(*operations: Operation) -> bool:
    """Whether nothing says that they are to run on different devices."""
    return len({operation.attributes.get(DEVICE) for operation in operations}) == 1
