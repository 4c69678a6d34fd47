"""Integer sums: those of N4, N9 and N15 are exact in int32 for every format, by induction on the number of products.

    S_0 = 0,   S_(n+1) = S_n + w * x,   low_w <= w <= high_w,   low_x <= x <= high_x
    n * least <= S_n <= n * most        with least, most the extremes of a product: kept by a step, and at n terms
                                        inside int32 (or int16, for vpmaddubsw)

Symbolic execution (products.py) has the same bounds lane by lane; this is the claim about the definition itself, and
the largest number of products each kind of accumulator holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unsay.compiler.codegen.kernels.attention_run import PART_TOKENS
from unsay.compiler.codegen.kernels.long_dot import MOST
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.smt import Term, decide, z3
from unsay.isa.formats import PART_COLUMNS, PART_WEIGHT_MOST, QUANT_BLOCK, WHOLE_MOST, DType
from unsay.isa.kv import MOST_INT8_DIM


@dataclass(frozen=True, slots=True)
class Accumulator:
    """`count` products of integers in these ranges, summed in so many bits."""

    weights: tuple[int, int]
    x: tuple[int, int]
    count: int
    bits: int = 32


WEIGHTS = {DType.Q4_0: (-8, 7), DType.Q4_1: (0, 15), DType.Q8_0: (-128, 127)}
ACTIVATIONS = {DType.Q8A: (-127, 127), DType.Q8W: (-127 * 128 - 64, 127 * 128 + 63)}

BLOCKS = {
    (w, x): Accumulator(WEIGHTS[w], ACTIVATIONS[x], QUANT_BLOCK) for w in WEIGHTS for x in ACTIVATIONS
}  # fmt: skip
"""The sum i of one block of N4."""

PART = Accumulator((-PART_WEIGHT_MOST, PART_WEIGHT_MOST), (-WHOLE_MOST, WHOLE_MOST), PART_COLUMNS)
"""The sum i of N15 over a part of a row."""

_LONG = (-MOST, MOST)

ATTENTION = {
    f"q . k of {MOST_INT8_DIM}": Accumulator((-128, 127), _LONG, MOST_INT8_DIM),
    f"w . v of {PART_TOKENS}": Accumulator((-128, 127), _LONG, PART_TOKENS),
}
"""The sums of N9 over int8 pages: of the largest head, of a part; what lies beyond a context's end may be -128."""

LONGEST = {
    "s8 * s8 in int32": Accumulator((-128, 127), (-128, 127), 131071),
    "u8 * s8 in int32": Accumulator((0, 255), (-128, 127), 65793),
    "u4 * s8 in int16": Accumulator((0, 15), (-128, 127), 17, 16),
}
"""The most products of a kind that an accumulator holds; one more can overflow."""


def prove_planes(low_bits: int = 7) -> Result:
    """An integer q of N9 or N14 is 128 * hi + lo, both int8, for hi = q >> 7 and lo = q & 127. Their sums are s8 * s8,
    and 128 times one and the other is the sum over q in 32 bits, which holds it. low_bits: other than 7 in a mutant."""
    q = z3.BitVec("q", 32)
    hi, lo = q >> low_bits, q & (1 << low_bits) - 1
    bytes_ = z3.And(hi >= -128, hi <= 127, lo >= -128, lo <= 127)
    return decide(z3.And(bytes_, (hi << 7) + lo == q), q >= -MOST, q <= MOST)


def prove_exact(a: Accumulator, step: Callable[..., Term] | None = None) -> Result:
    """The induction above. step: what is added in place of the product (a mutant)."""
    n, total, w, x = z3.Ints("n total w x")
    ends = [p * q for p in a.weights for q in a.x]
    least, most = min(ends), max(ends)
    ranges = z3.And(a.weights[0] <= w, w <= a.weights[1], a.x[0] <= x, x <= a.x[1])
    product = decide(z3.And(least <= w * x, w * x <= most), ranges)
    if product.status is not Status.PROVED:
        return product
    added: Term = z3.Int("added") if step is None else step(w, x)
    bounded = z3.And(least <= added, added <= most) if step is None else ranges
    known = z3.And(n >= 0, n < a.count, n * least <= total, total <= n * most, bounded)
    kept = z3.And((n + 1) * least <= total + added, total + added <= (n + 1) * most)
    limit = 1 << a.bits - 1
    inside = z3.And(-limit <= total + added, total + added < limit)
    return decide(z3.And(kept, inside), known)
