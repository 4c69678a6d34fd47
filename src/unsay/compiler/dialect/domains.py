"""The number systems that operations are given meaning over (dialect/semantics.py).

    FLOAT   NumPy floats: running a graph. f16, bf16 and quantised values are f32 arrays, rounded after each operation.
    FIELD   integers mod 65521, functions by hashing: two graphs that are equal as polynomials are equal here, and two
            that are not differ at random inputs with a probability of all but degree / 65521 (Schwartz, Zippel).
            Order is that of a fixed permutation of the field, so that max(x, 0) is not x.

In every domain integers and bools are concrete NumPy arrays, so that an index is an index. `Domain` itself does what
NumPy does for arrays of any objects with +, -, *, /, so that a domain of objects overrides little (Z3 reals: verify/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.ir.types import FLOATS, dtype_name
from unsay.isa.formats import QUANT_BLOCK, WIDE_FACTOR, DType

Array: TypeAlias = NDArray[Any]
Number: TypeAlias = Array | float

CONCRETE = {DType.I32: np.int32, DType.I64: np.int64, DType.I8: np.int8, DType.BOOL: np.bool_}
"""Element types that are themselves in every domain."""

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
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
        return _COMPARE[relation](a, b)

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


class FloatDomain(Domain):
    """NumPy floats. f64 is computed in f64, all else in f32."""

    def enter(self, array: Array, dtype: DType) -> Array:
        if dtype in CONCRETE:
            return np.asarray(array).astype(CONCRETE[dtype])
        array = from_bits(array) if dtype is DType.BF16 else array
        return self.round(np.asarray(array, np.float64 if dtype is DType.F64 else np.float32), dtype)

    def lift(self, array: Array) -> Array:
        return np.asarray(array, np.float32)

    def leave(self, array: Array, dtype: DType) -> Array:
        return array.astype(np.float16) if dtype is DType.F16 else array

    def cast(self, x: Array, dtype: DType) -> Array:
        if dtype in CONCRETE:
            return x.astype(CONCRETE[dtype]) if is_concrete(x) else self.to_concrete(x, dtype)
        return self.round(x.astype(np.float64 if dtype is DType.F64 else np.float32), dtype)

    def to_concrete(self, x: Array, dtype: DType) -> Array:
        return x != 0 if dtype is DType.BOOL else np.trunc(x).astype(CONCRETE[dtype])

    def round(self, x: Array, dtype: DType) -> Array:
        if dtype is DType.F16:
            return x.astype(np.float16).astype(np.float32)
        return round_bf16(x) if dtype is DType.BF16 else x

    def apply(self, function: str, x: Array) -> Array:
        return np.asarray(_FLOAT_FUNCTIONS[function](x), x.dtype)

    def maximum(self, a: Number, b: Number) -> Array:
        return np.maximum(*self._pair(a, b))

    def minimum(self, a: Number, b: Number) -> Array:
        return np.minimum(*self._pair(a, b))

    def extreme(self, relation: str, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
        return np.asarray((np.max if relation == "greater" else np.min)(x, axis=axes, keepdims=keepdims))

    def _like(self, number: float, x: Array) -> Array:
        return np.asarray(number, x.dtype)


def from_bits(array: Array) -> Array:
    """bf16 as f32: a uint16 array is the bits of one, another is its values."""
    is_bits = array.dtype == np.uint16
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32) if is_bits else np.asarray(array)


def round_bf16(x: Array) -> Array:
    """f32 rounded to the nearest bf16, ties to even, as f32; nan stays nan."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def _round_blocks(x: Array, wide: bool) -> Array:
    """x quantised and back (docs/numerics.md N3, N3w): what a quantised product reads."""
    blocks = x.reshape(*x.shape[:-1], -1, QUANT_BLOCK)
    magnitude = np.abs(blocks)
    amax = magnitude.max(-1, keepdims=True)
    is_wide = (WIDE_FACTOR * amax > magnitude.sum(-1, keepdims=True)) & wide
    scale = amax / np.where(is_wide, 16256, 127).astype(x.dtype)
    whole = np.round(np.divide(blocks, scale, out=np.zeros_like(blocks), where=amax >= 2.0**-100))
    return (whole * scale).reshape(x.shape)


_FLOAT_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "floor": np.floor,
    "erf": lambda x: np.frompyfunc(math.erf, 1, 1)(x),
    "round_q8a": lambda x: _round_blocks(x, wide=False),
    "round_q8w": lambda x: _round_blocks(x, wide=True),
}  # fmt: skip


PRIME = 65521
"""The greatest prime below 2**16: products of 2**20 pairs are exact in a double, so that BLAS does the sums."""

_EXACT_TERMS = 2**20
_PERMUTATION = (40503, 12345)
_INFINITIES = (np.uint64(17), np.uint64(19))
_MANTISSA = 53
_TWO_TO = np.array([pow(2, exponent - _MANTISSA, PRIME) for exponent in (*range(1025), *range(-1074, 0))], np.uint64)
"""2**(exponent - 53) at the exponent, a negative one counted from the end."""


class FieldDomain(Domain):
    """Residues as uint64 arrays. A float constant is the fraction it is, so that 0.5 + 0.5 is 1."""

    def lift(self, array: Array) -> Array:
        """Residues of numbers; uint64 arrays are residues already."""
        if array.dtype.kind in "iub":
            return (array.astype(np.int64) % PRIME).astype(np.uint64)
        finite = np.isfinite(array)
        fraction, exponent = np.frexp(np.where(finite, array, 0).astype(np.float64))
        numerator = np.ldexp(fraction, _MANTISSA).astype(np.int64) % PRIME
        residues = numerator.astype(np.uint64) * _TWO_TO[exponent] % np.uint64(PRIME)
        return np.where(finite, residues, np.where(array > 0, *_INFINITIES))

    def to_concrete(self, x: Array, dtype: DType) -> Array:
        return x != 0 if dtype is DType.BOOL else x.astype(CONCRETE[dtype])

    def round(self, x: Array, dtype: DType) -> Array:
        """f32 holds anything; another float type is a function of what it is given."""
        return x if dtype not in FLOATS or dtype in (DType.F32, DType.F64) else self.apply(dtype_name(dtype), x)

    def apply(self, function: str, x: Array) -> Array:
        """A number that the function's name and the argument decide (splitmix64)."""
        z = x + np.uint64(int.from_bytes(function.encode().ljust(8)[:8], "little"))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
        return (z ^ (z >> np.uint64(31))) % np.uint64(PRIME)

    def add(self, a: Number, b: Number) -> Array:
        return _modulo(super().add(a, b))

    def sub(self, a: Number, b: Number) -> Array:
        a, b = self._pair(a, b)
        return a - b if is_concrete(a) else (a + np.uint64(PRIME) - b) % np.uint64(PRIME)

    def mul(self, a: Number, b: Number) -> Array:
        return _modulo(super().mul(a, b))

    def div(self, a: Number, b: Number) -> Array:
        """a times the inverse of b; the inverse of 0 is 0."""
        a, b = self._pair(a, b)
        return self.mul(a, _power(b, PRIME - 2))

    def pow(self, a: Array, b: Array) -> Array:
        return self.apply("pow", self.add(self.mul(a, 31.0), self.apply("exponent", b)))

    def compare(self, relation: str, a: Number, b: Number) -> Array:
        a, b = self._pair(a, b)
        return _COMPARE[relation](_order(a), _order(b))

    def argmax(self, x: Array, axis: int) -> Array:
        return np.argmax(_order(x), axis)

    def sum(self, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
        return _modulo(super().sum(x, axes, keepdims=keepdims))

    def cumsum(self, x: Array, axis: int) -> Array:
        return _modulo(super().cumsum(x, axis))

    def matmul(self, a: Array, b: Array) -> Array:
        if is_concrete(a):
            return np.matmul(a, b)
        assert a.shape[-1] <= _EXACT_TERMS, a.shape
        exact = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return np.fmod(exact, PRIME).astype(np.uint64)


def _modulo(x: Array) -> Array:
    return x if is_concrete(x) else x % np.uint64(PRIME)


def _order(x: Array) -> Array:
    factor, offset = map(np.uint64, _PERMUTATION)
    return x if is_concrete(x) else (x * factor + offset) % np.uint64(PRIME)


def _power(x: Array, exponent: int) -> Array:
    result = np.ones_like(x)
    while exponent:
        if exponent & 1:
            result = result * x % np.uint64(PRIME)
        x = x * x % np.uint64(PRIME)
        exponent >>= 1
    return result


FLOAT = FloatDomain()
FIELD = FieldDomain()
