"""How each value invariant of the table of operations is settled: proved here over the reals, or checked as it runs.

A proof is about one element, one pair or one row, whichever the invariant speaks of; a row has up to 4 elements, or any
number where its sums are unknowns of their own. What is not proved needs facts about functions that Z3 has not (the
least value of silu), or says what an operation is by definition: `evaluate(checked=True)` checks it, as it checks the
proved ones, whose rounding no proof sees.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from unsay.compiler.verify import bounds
from unsay.compiler.verify.obligation import Obligation, Result, all_of
from unsay.compiler.verify.smt import Term, decide, z3

CHECKED = "checked as it runs"
"""The method of an invariant without a proof."""


@dataclass(frozen=True, slots=True)
class Settled:
    """An invariant of operations, and its proof, if there is one."""

    operations: tuple[str, ...]
    invariant: str
    method: str
    prove: Callable[[], Result] | None = None


def invariants_obligations() -> list[Obligation]:
    """Those that have a proof."""
    found: list[Obligation] = []
    for row in SETTLED:
        if row.prove is not None:
            names = ", ".join(row.operations)
            found.append(Obligation(f"{names}: {row.invariant}", "T2", row.method, row.prove))
    return found


def _magnitude() -> Result:
    x = z3.Real("x")
    return decide(z3.If(x >= 0, x, -x) >= 0)


def _ramp() -> Result:
    x = z3.Real("x")
    return decide(z3.If(x > 0, x, 0) >= 0)


def _greater(least: bool) -> Result:
    a, b = z3.Reals("a b")
    made = z3.If(a > b, b, a) if least else z3.If(a > b, a, b)
    return decide(z3.And(made <= a, made <= b) if least else z3.And(made >= a, made >= b))


def _root() -> Result:
    x, y = z3.Reals("x y")
    return decide(z3.Implies(z3.And(x > 0, y >= 0, y * y == x), z3.And(y > 0, 1 / y >= 0)))


def _floor() -> Result:
    x = z3.Real("x")
    return decide(z3.ToReal(z3.ToInt(x)) <= x)


def _logistic() -> Result:
    e = z3.Real("exp(-x)")
    return decide(z3.And(1 / (1 + e) >= 0, 1 / (1 + e) <= 1), e > 0)


def _positive() -> Result:
    half = z3.Real("exp(x/2)")
    return decide(half * half >= 0)


def _softmax(claim: Callable[[list[Term], Term], Term]) -> Result:
    results: list[Result] = []
    for length in range(1, 5):
        e = [z3.Real(f"e{place}") for place in range(length)]
        total = z3.Sum(e)
        results.append(decide(claim([x / total for x in e], total), *(x > 0 for x in e)))
    return all_of(results)


def _shares(y: list[Term], _total: Term) -> Term:
    return z3.And(*(z3.And(value >= 0, value <= 1) for value in y))


def _sums_to_one(y: list[Term], _total: Term) -> Term:
    return z3.Sum(y) == 1


def _normed() -> Result:
    """mean(n * n) = mean(x * x) * g^2 with g^2 * (mean(x * x) + eps) = 1."""
    square, eps, gain = z3.Reals("mean(x*x) eps g")
    return decide(square * gain * gain <= 1, square >= 0, eps > 0, gain * gain * (square + eps) == 1)


def _centred() -> Result:
    """The sum of x - mean over n elements, of which `total` is the sum."""
    total, n, gain = z3.Reals("sum(x) n g")
    return decide((total - n * (total / n)) * gain / n == 0, n >= 1)


def _turned() -> Result:
    a, b, cos, sin = z3.Reals("a b cos sin")
    left, right = a * cos - b * sin, b * cos + a * sin
    return decide(left * left + right * right == a * a + b * b, cos * cos + sin * sin == 1)


_LEAST_SILU = "y >= -0.2784645427610738"

SETTLED: tuple[Settled, ...] = (
    Settled(("abs",), "y >= 0", "reals", _magnitude),
    Settled(("relu", "conv2d_relu"), "y >= 0", "reals", _ramp),
    Settled(("exp",), "y >= 0", "reals, exp(x) = exp(x/2)^2", _positive),
    Settled(("sqrt", "rsqrt"), "y >= 0", "reals", _root),
    Settled(("floor",), "y <= x", "integers", _floor),
    Settled(("maximum",), "y >= a", "reals", partial(_greater, False)),
    Settled(("maximum",), "y >= b", "reals", partial(_greater, False)),
    Settled(("minimum",), "y <= a", "reals", partial(_greater, True)),
    Settled(("minimum",), "y <= b", "reals", partial(_greater, True)),
    Settled(("sigmoid",), "y >= 0", "reals, exp > 0", _logistic),
    Settled(("sigmoid",), "y <= 1", "reals, exp > 0", _logistic),
    Settled(("softmax",), "y >= 0", "rows up to 4, exp > 0", partial(_softmax, _shares)),
    Settled(("softmax",), "y <= 1", "rows up to 4, exp > 0", partial(_softmax, _shares)),
    Settled(("softmax",), "sum(y, axis) == 1", "rows up to 4, exp > 0", partial(_softmax, _sums_to_one)),
    Settled(("attention",), "p >= 0", "rows up to 4, exp > 0", partial(_softmax, _shares)),
    Settled(("attention",), "sum(p, axis=-1) == 1", "rows up to 4, exp > 0", partial(_softmax, _sums_to_one)),
    Settled(("attention",), "min(V) <= y", "induction, reals", bounds.prove_averaging),
    Settled(("attention",), "y <= max(V)", "induction, reals", bounds.prove_averaging),
    Settled(("rms_norm", "layer_norm"), "mean(n * n, axis=-1) <= 1", "reals", _normed),
    Settled(("layer_norm",), "mean(n, axis=-1) == 0", "reals", _centred),
    Settled(("rope",), "sum(y * y, axis=-1) == sum(x * x, axis=-1)", "reals, one pair", _turned),
    Settled(("quantise",), "abs(q) <= most", "reals with rounding", bounds.prove_rounding),
    Settled(("quantise",), "abs(x - q * scale) <= scale / 2", "reals with rounding", bounds.prove_rounding),
    Settled(("reorder", "transfer"), "y == x", CHECKED),
    Settled(("silu", "matmul_silu"), _LEAST_SILU, CHECKED),
    Settled(("gelu",), "y >= -0.1704", CHECKED),
    Settled(("sin", "cos", "tanh", "erf"), "abs(y) <= 1", CHECKED),
    Settled(("argmax",), "y >= 0", CHECKED),
)  # fmt: skip
"""Every value invariant of the table (dialect/ops.py), each once."""
