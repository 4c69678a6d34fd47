"""What the meanings of operations share (dialect/semantics.py)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.ir.core import Operation
from unsay.compiler.ir.types import TensorType

Meaning: TypeAlias = Callable[[Domain, Operation, Sequence[Array]], tuple[Array, ...]]
"""The results of an operation from the domain, the operation itself and its operands."""


def sigmoid(d: Domain, x: Array) -> Array:
    """1 / (1 + exp(-x))"""
    return d.div(1.0, d.add(1.0, d.apply("exp", negated(d, x))))


def silu(d: Domain, x: Array) -> Array:
    """x / (1 + exp(-x))"""
    return d.div(x, d.add(1.0, d.apply("exp", negated(d, x))))


def negated(d: Domain, x: Array) -> Array:
    """0 - x"""
    return d.sub(0.0, x)


def mean(d: Domain, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
    """sum(x) / count"""
    return d.div(d.sum(x, axes, keepdims=keepdims), float(math.prod(x.shape[axis] for axis in axes)))


def bordered(d: Domain, x: Array, before: Sequence[int], after: Sequence[int], value: float) -> Array:
    """x with a border of a value."""
    shape = [low + extent + high for low, extent, high in zip(before, x.shape, after, strict=True)]
    whole = d.full(shape, value, x)
    whole[tuple(slice(low, low + extent) for low, extent in zip(before, x.shape, strict=True))] = x
    return whole


def fixed_shape(tensor_type: TensorType) -> tuple[int, ...]:
    """The shape of a type without symbolic dimensions."""
    for extent in tensor_type.dims:
        assert isinstance(extent, int), f"{tensor_type} is not of fixed size: see ir/specialise.py"
    return tensor_type.dims  # pyright: ignore[reportReturnType]
