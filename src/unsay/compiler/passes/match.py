"""What rewrites ask about the values they match."""

from __future__ import annotations

from unsay.compiler.ir.core import Operation, Value


def made_by(value: Value, kind: str) -> Operation | None:
    """The operation of this kind that made the value, if it did and nothing else reads the value."""
    return value.producer if value.producer.kind == kind and len(value.uses) == 1 else None


def addends(operation: Operation, kind: str) -> tuple[Value, Operation] | None:
    """For a commutative operation: (the other operand, the operation of this kind that made one of them)."""
    a, b = operation.operands
    for other, value in ((a, b), (b, a)):
        made = made_by(value, kind)
        if made is not None and other is not value:
            return other, made
    return None
