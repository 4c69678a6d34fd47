"""Arithmetic that operations are given meaning by, for any kind of number (dialect/domains.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.isa.formats import DType

Array: TypeAlias = NDArray[Any]
Number: TypeAlias = Array | float

CONCRETE = {DType.I32: np.int32, DType.I64: np.int64, DType.I8: np.int8, DType.BOOL: np.bool_}
"""Element types that are themselves in every domain."""

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "equal": np.equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal,
}  # fmt: skip

_LOGICAL: dict[str, Callable[..., Any]] = {"and": np.logical_and, "or": np.logical_or, "not": np.logical_not}


class Domain:
    """Arithmetic on arrays of one kind of number. A Python float is a constant in any operand."""

    def enter(self, array: Array, dtype: DType) -> Array:
        """An array from outside, of this element type."""
        if dtype in CONCRETE:
            return np.asarray(array).astype(CONCRETE[dtype])
        return self.lift(from_bits(array) if dtype is DType.BF16 else np.asarray(array))

    def lift(self, array: Array) -> Array:
        """Concrete numbers as numbers of the domain."""
        raise NotImplementedError

    def leave(self, array: Array, _dtype: DType) -> Array:
        """What a result of this element type looks like outside."""
        return array

    def cast(self, x: Array, dtype: DType) -> Array:
        """x as another element type."""
        if dtype in CONCRETE:
            return x.astype(CONCRETE[dtype]) if is_concrete(x) else self.to_concrete(x, dtype)
        return self.round(self.lift(x) if is_concrete(x) else x, dtype)

    def to_concrete(self, x: Array, dtype: DType) -> Array:
        """Numbers of the domain as integers or bools."""
        raise NotImplementedError

    def round(self, x: Array, _dtype: DType) -> Array:
        """What is left of x when it is stored as an element type."""
        return x

    def apply(self, function: str, x: Array) -> Array:
        """exp, log, sqrt, sin, cos, tanh, erf, floor; round_q8a, round_q8w: quantised and back."""
        raise NotImplementedError

    def add(self, a: Number, b: Number) -> Array:
        """a + b"""
        a, b = self._pair(a, b)
        return a + b

    def sub(self, a: Number, b: Number) -> Array:
        """a - b"""
        a, b = self._pair(a, b)
        return a - b

    def mul(self, a: Number, b: Number) -> Array:
        """a * b"""
        a, b = self._pair(a, b)
        return a * b

    def div(self, a: Number, b: Number) -> Array:
        """a / b"""
        a, b = self._pair(a, b)
        return a / b

    def pow(self, a: Array, b: Array) -> Array:
        """a to the power of b"""
        return a**b

    def maximum(self, a: Number, b: Number) -> Array:
        """The greater, element by element."""
        a, b = self._pair(a, b)
        return self.select(self.compare("greater_equal", a, b), a, b)

    def minimum(self, a: Number, b: Number) -> Array:
        """The lesser, element by element."""
        a, b = self._pair(a, b)
        return self.select(self.compare("less_equal", a, b), a, b)

    def compare(self, relation: str, a: Number, b: Number) -> Array:
        """equal, less, less_equal, greater, greater_equal"""
        a, b = self._pair(a, b)
        return COMPARE[relation](a, b)

    def logical(self, connective: str, *operands: Array) -> Array:
        """and, or, not"""
        return np.asarray(_LOGICAL[connective](*operands))

    def full(self, shape: Sequence[int], value: float, like: Array) -> Array:
        """A new array of one value, of the kind of another."""
        return np.full(shape, self._like(value, like), like.dtype)

    def select(self, condition: Array, a: Number, b: Number) -> Array:
        """a where the condition holds, else b"""
        a, b = self._pair(a, b)
        return np.where(condition, a, b)

    def sum(self, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
        """The sum over axes, in the element type of x."""
        return np.asarray(np.sum(x, axis=axes, keepdims=keepdims, dtype=x.dtype))

    def extreme(self, relation: str, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
        """The element that is `greater` or `less` than the others over axes."""
        pick = self.maximum if relation == "greater" else self.minimum
        for axis in axes:
            parts = np.split(x, x.shape[axis], axis)
            x = parts[0]
            for part in parts[1:]:
                x = pick(x, part)
        return x if keepdims else np.squeeze(x, axes)

    def argmax(self, x: Array, axis: int) -> Array:
        """The first index of the greatest along an axis."""
        return np.argmax(x, axis)

    def cumsum(self, x: Array, axis: int) -> Array:
        """Running sums along an axis."""
        return np.cumsum(x, axis, dtype=x.dtype)

    def matmul(self, a: Array, b: Array) -> Array:
        """Products of matrices, leading dimensions broadcast."""
        return np.matmul(a, b)

    def _pair(self, a: Number, b: Number) -> tuple[Array, Array]:
        """Two operands as arrays of one kind: a Python number is of the kind of the other."""
        if isinstance(a, np.ndarray):
            return a, b if isinstance(b, np.ndarray) else self._like(b, a)
        assert isinstance(b, np.ndarray), (a, b)
        return self._like(a, b), b

    def _like(self, number: float, x: Array) -> Array:
        return np.asarray(number, x.dtype) if is_concrete(x) else self.lift(np.asarray(number))


def is_concrete(x: Array) -> bool:
    """Whether these are integers or bools, the same in every domain; a field has unsigned ones."""
    return x.dtype.kind in "ib"


def from_bits(array: Array) -> Array:
    """bf16 as f32: a uint16 array is the bits of one, another is its values."""
    is_bits = array.dtype == np.uint16
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32) if is_bits else np.asarray(array)
