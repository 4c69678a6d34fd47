"""FIELD, the integers mod 65521 (dialect/domains.py)."""

from __future__ import annotations

import numpy as np

from unsay.compiler.dialect.domain import COMPARE, CONCRETE, Array, Domain, Number, is_concrete
from unsay.compiler.ir.types import FLOATS, dtype_name
from unsay.isa.formats import DType

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
        return COMPARE[relation](_order(a), _order(b))

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


FIELD = FieldDomain()
