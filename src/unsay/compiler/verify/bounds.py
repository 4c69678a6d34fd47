"""T5: how far f32 results may be from the real numbers they stand for.

Every rounded operation is taken as the exact one times (1 + e), |e| <= U = 2^-24 (IEEE-754, no overflow, no underflow;
the quantiser zeroes blocks below 2^-100). Each bound is a step that Z3 decides over the reals, and a closed form that
is the step repeated. With p_j the real terms, S their sum and A the sum of their magnitudes:

    rounding    q of N3:      |q| <= 127 and |x - q * scale| <= scale / 2 * (1 + 2^-14)
                wide of N3w:  |q| <= 16256, the same with 1 + 2^-7
    summing     one more term fma(a, b, acc), the product a * b within `given` of its real value:
                    |acc - S| <= g * A before   =>   |acc' - S'| <= ((1 + max(g, given)) * (1 + U) - 1) * A' after
                so K blocks of N4 give  (1 + U)^(K+2) - 1, a row of N5 (1 + U)^K - 1, and of K terms sum16 and
                dot16 (1 + U)^(K/16 + 4) - 1, times A
    averaging   a softmax of weights w >= 0 with sum L >= 1: min v <= sum(w v) / L <= max v, in the reals

How near N2 is to exp is not proved: tests measure it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unsay.compiler.verify.obligation import Result
from unsay.compiler.verify.smt import Term, decide, z3

UNIT = 2.0**-24
"""Half the distance from 1 to the next f32."""


def prove_rounding(most: int = 127, slack: float = 2.0**-14, half: float = 0.5) -> Result:
    """The bound of N3 (most = 127) or N3w (16256), for a block with amax = 1, which loses nothing: scale follows amax.

    half: how far an integer may be from what it rounds.
    """
    x, q, r = z3.Reals("x q r")
    e = z3.Reals("e_inverse e_product e_scale")
    inverse, scale = most * (1 + e[0]), (1 + e[2]) / most
    known = z3.And(x >= -1, x <= 1, *map(_small, e), q == x * inverse * (1 + e[1]) + r, -half <= r, r <= half)
    error = x - q * scale
    limit = (1 + z3.RealVal(slack)) / (2 * most)
    integer = z3.And(q < most + 1, q > -most - 1)
    return decide(z3.And(integer, -limit <= error, error <= limit), known)


def grown(g: Term, u: Term) -> Term:
    """The factor of the bound after one more rounding."""
    return (1 + g) * (1 + u) - 1


def prove_summing(growth: Callable[[Term, Term], Term] = grown) -> Result:
    """The step of `summing`: one more product. growth: the factor after, from the factor before and U."""
    acc, total, size, term, made, e_sum = z3.Reals("acc total size term made e_sum")
    g = z3.Real("g")
    magnitude = z3.If(term >= 0, term, -term)
    known = z3.And(
        g >= 0, g <= 1, size >= 0, -size <= total, total <= size, -g * size <= acc - total, acc - total <= g * size,
        -g * magnitude <= made - term, made - term <= g * magnitude, _small(e_sum),
    )  # fmt: skip
    error = (acc + made) * (1 + e_sum) - (total + term)
    limit = growth(g, z3.RealVal(UNIT)) * (size + magnitude)
    return decide(z3.And(-limit <= error, error <= limit), known)


def prove_averaging() -> Result:
    """Adding a value with a weight to a weighted mean leaves it between the least and the largest value."""
    low, high, total, weight, mean, v = z3.Reals("low high total weight mean v")
    known = z3.And(low <= mean, mean <= high, low <= v, v <= high, total >= 1, weight >= 0)
    moved = (mean * total + weight * v) / (total + weight)
    return decide(z3.And(low <= moved, moved <= high), known)


@dataclass(frozen=True, slots=True)
class Bound:
    """|result - real| <= factor * (sum of magnitudes of the terms)."""

    num_roundings: int

    @property
    def factor(self) -> float:
        """(1 + U)^n - 1."""
        return (1 + UNIT) ** self.num_roundings - 1


def quantised_product(num_columns: int) -> Bound:
    """N4 with one fma a block: the scale's product rounds once, i to f32 at most once, then one rounding a block."""
    return Bound(num_columns // 32 + 2)


def quantised_product_with_offset(num_columns: int) -> Bound:
    """N4 of Q4_1: two fma a block."""
    return Bound(2 * (num_columns // 32) + 2)


def float_product(num_columns: int) -> Bound:
    """N5."""
    return Bound(num_columns)


def horizontal_sum(num_columns: int) -> Bound:
    """sum16 and dot16 (N1): a lane's terms, then four halvings."""
    return Bound(num_columns // 16 + 4)


def _small(e: Term) -> Term:
    return z3.And(e >= -UNIT, e <= UNIT)
