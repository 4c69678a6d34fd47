"""The domain of real numbers as Z3 expressions: operations on arrays of them are formulas about every input at once.

Functions are unknown: a variable for every argument, so that what is proved does not rest on what they are, but for
`facts`, which are that exp is positive and what a square root is. A quantised block is 32 functions of all elements.
-inf, which masks a score, is itself, and exp of it is 0. A quotient by 0 is anything.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from unsay.compiler.dialect.domains import Array, Domain, Number, is_concrete
from unsay.compiler.verify.smt import Term, z3
from unsay.isa.formats import QUANT_BLOCK, DType

_BOOLS: Any = (bool, np.bool_)


class RealDomain(Domain):
    """Object arrays of Z3 reals; conditions are object arrays of Z3 or Python bools.

    rounds: whether a narrower element type leaves a function of a number, or the number itself.
    """

    def __init__(self, *, rounds: bool = True) -> None:
        self.facts: list[Term] = []
        self._rounds = rounds
        self._arguments: list[Term] = []

    def lift(self, array: Array) -> Array:
        return _each(_real, np.asarray(array))

    def round(self, x: Array, dtype: DType) -> Array:
        """Real numbers are not rounded; what narrower element types leave of them is a function."""
        return self.apply(dtype.name.lower(), x) if self._rounds and dtype in (DType.F16, DType.BF16) else x

    def apply(self, function: str, x: Array) -> Array:
        if function.startswith("round_"):
            return self._blocks(function, x)
        return _each(partial(self._function, function), x)

    def _function(self, function: str, item: Any) -> Any:
        """A variable for the function of what the item's normal form is, the same each time it is met."""
        if function == "exp" and _is_infinite(item):
            return 0.0
        argument = _normal(item)
        made = self._variable(function, argument)
        if function == "exp":
            self.facts.append(made > 0)
        if function == "sqrt":
            self.facts.append(z3.Implies(argument >= 0, z3.And(made >= 0, made * made == argument)))
        return made

    def _blocks(self, function: str, x: Array) -> Array:
        """Blocks of the last dimension, each element a function of its block."""
        made = np.empty(x.shape, object)
        for row, block in zip(x.reshape(-1, QUANT_BLOCK), made.reshape(-1, QUANT_BLOCK), strict=True):
            arguments = [_normal(item) for item in row]
            block[:] = [self._variable(f"{function}.{place}", *arguments) for place in range(QUANT_BLOCK)]
        return made

    def _variable(self, function: str, *arguments: Term) -> Term:
        """The variable for a function of these normal forms, which are kept so that their numbers stay theirs."""
        self._arguments += arguments
        return z3.Real(f"{function}#{'.'.join(str(argument.get_id()) for argument in arguments)}")

    def sub(self, a: Number, b: Number) -> Array:
        a, b = self._pair(a, b)
        return a - b if is_concrete(a) else _each(_difference, a, b)

    def pow(self, a: Array, b: Array) -> Array:
        """Some function, but for the exponents 1, 2, 1/2, -1/2 and -1."""
        return _each(self._power, a, b)

    def _power(self, x: Any, y: Any) -> Any:
        known = _POWERS.get(y.as_fraction()) if z3.is_rational_value(y) else None
        if known is None:
            return self._variable("pow", _normal(x), _normal(y))
        return known(x, self._function("sqrt", x) if known in _ROOTS else None)

    def compare(self, relation: str, a: Number, b: Number) -> Array:
        a, b = self._pair(a, b)
        return (
            super().compare(relation, a, b)
            if is_concrete(a)
            else _each(partial(_infinite_compare, _COMPARE[relation]), a, b)
        )

    def logical(self, connective: str, *operands: Array) -> Array:
        return _each(_LOGICAL[connective], *operands)

    def select(self, condition: Array, a: Number, b: Number) -> Array:
        a, b = self._pair(a, b)
        return _each(_if, condition, a, b)

    def extreme(self, relation: str, x: Array, axes: tuple[int, ...], *, keepdims: bool = True) -> Array:
        result = super().extreme(relation, x, axes, keepdims=keepdims)
        return np.asarray(result, object)


def _itself(x: Any, _root: Any) -> Any:
    return x


def _square(x: Any, _root: Any) -> Any:
    return x * x


def _inverse(x: Any, _root: Any) -> Any:
    return 1 / x


def _root(_x: Any, root: Any) -> Any:
    return root


def _inverse_root(_x: Any, root: Any) -> Any:
    return 1 / root


_POWERS: dict[Fraction, Callable[[Any, Any], Any]] = {
    Fraction(1): _itself, Fraction(2): _square, Fraction(-1): _inverse, Fraction(1, 2): _root,
    Fraction(-1, 2): _inverse_root,
}  # fmt: skip
_ROOTS = (_root, _inverse_root)


def variables(name: str, shape: Sequence[int], dtype: DType = DType.F32) -> Array:
    """An array of reals, or bools, that may be anything."""
    make = z3.Bool if dtype is DType.BOOL else z3.Real
    made = np.empty(tuple(shape), object)
    for place in np.ndindex(*shape):
        made[place] = make(f"{name}[{','.join(map(str, place))}]")
    return made


def _each(function: Any, *arrays: Array) -> Array:
    """The function of corresponding elements, as an array of objects whatever their number."""
    spread = np.broadcast_arrays(*[np.asarray(array, object) for array in arrays])
    made = np.empty(spread[0].shape, object)
    for place in np.ndindex(made.shape):
        made[place] = function(*[array[place] for array in spread])
    return made


def _difference(a: Any, b: Any) -> Any:
    return a if _is_infinite(a) else a - b


def _real(value: Any) -> Any:
    if isinstance(value, _BOOLS):
        return bool(value)
    if math.isinf(value):
        return float(value)
    fraction = Fraction(float(value))
    return z3.Q(fraction.numerator, fraction.denominator)


def _normal(value: Any) -> Term:
    return z3.simplify(_term(value), som=True, sort_sums=True)


def _term(value: Any) -> Term:
    return z3.RealVal(value) if isinstance(value, int | float) else value


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def _if(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, _BOOLS):
        return a if condition else b
    return z3.If(condition, _term(a), _term(b))


def _infinite_compare(relation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """-inf is less than every real, and equal to itself."""
    if _is_infinite(a) or _is_infinite(b):
        return relation(a if _is_infinite(a) else 0.0, b if _is_infinite(b) else 0.0)
    return relation(_term(a), _term(b))


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "equal": operator.eq, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge,
}  # fmt: skip


def _and(a: Any, b: Any) -> Any:
    return bool(a and b) if isinstance(a, _BOOLS) and isinstance(b, _BOOLS) else z3.And(a, b)


def _or(a: Any, b: Any) -> Any:
    return bool(a or b) if isinstance(a, _BOOLS) and isinstance(b, _BOOLS) else z3.Or(a, b)


def _not(a: Any) -> Any:
    return not a if isinstance(a, _BOOLS) else z3.Not(a)


_LOGICAL: dict[str, Callable[..., Any]] = {"and": _and, "or": _or, "not": _not}
