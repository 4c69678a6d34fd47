"""The rope table against 50 digits of `decimal`, and against nothing a CPU could round differently."""

from __future__ import annotations

import hashlib
from decimal import Decimal, localcontext

import numpy as np
import pytest

from unsay.compiler.rope import cos_sin, rope_rows, turns

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def exact_cos_sin(position: int, pair: int, head_dim: int, base: float) -> tuple[Decimal, Decimal]:
    """cos and sin of position * base^(-2 pair / head_dim), by Taylor series in 80 digits."""
    with localcontext() as context:
        context.prec = 80
        angle = position * (Decimal(-2 * pair) / head_dim * Decimal(base).ln()).exp() % (2 * PI)
        return series(angle, 0), series(angle, 1)


def series(angle: Decimal, power: int) -> Decimal:
    """Sum of the alternating Taylor terms from x^power (0: cosine, 1: sine)."""
    term, total = (angle if power else Decimal(1)), Decimal(0)
    while abs(term) > Decimal("1e-60"):
        total += term
        power += 2
        term = -term * angle * angle / (power * (power - 1))
    return total


def ulps(found: np.float32, exact: Decimal) -> float:
    """Distance in units in the last place of the float32 nearest to the exact value."""
    unit = np.spacing(np.abs(np.float32(float(exact)))).item()
    return float(abs(Decimal(float(found)) - exact) / Decimal(unit))


@pytest.mark.parametrize(("head_dim", "base"), [(64, 1e5), (128, 1e6), (16, 1e4), (64, 5e5)])
def test_within_one_ulp_of_the_exact_value_far_out_too(head_dim: int, base: float) -> None:
    random = np.random.default_rng(7)
    positions = [0, 1, 2, 3, 8191, 131071, (1 << 20) - 1, *random.integers(0, 1 << 20, 25).tolist()]
    worst = 0.0
    for position in positions:
        row = rope_rows(range(position, position + 1), head_dim, base)[0]
        for pair in random.integers(0, head_dim // 2, 6).tolist():
            for found, exact in zip(row[pair], exact_cos_sin(position, pair, head_dim, base), strict=True):
                worst = max(worst, ulps(found, exact))
    assert worst < 0.5001


def test_within_one_ulp_where_cos_and_sin_come_near_zero() -> None:
    angles = turns(range(1 << 16), 64, 1e5)
    table = np.abs(np.stack(cos_sin(angles), axis=-1))
    for flat in np.argsort(table[1:], axis=None)[:40]:
        position, pair, which = np.unravel_index(flat, table[1:].shape)
        found = rope_rows(range(int(position) + 1, int(position) + 2), 64, 1e5)[0, pair, which]
        assert ulps(found, exact_cos_sin(int(position) + 1, int(pair), 64, 1e5)[which]) < 0.5001


def test_quarter_turns_are_exact() -> None:
    quarters = np.array([0, 1 << 62, 1 << 63, 3 << 62], np.uint64)
    cos, sin = cos_sin(quarters)
    assert cos.tolist() == [1, 0, -1, 0] and sin.tolist() == [0, 1, 0, -1]


def test_no_pair_turns_at_position_zero() -> None:
    assert rope_rows(range(1), 64, 1e5).tolist() == [[[1.0, 0.0]] * 32]


def test_a_table_in_parts_is_the_whole_table() -> None:
    whole = rope_rows(range(300), 32, 1e4)
    parts = [rope_rows(range(start, min(start + 77, 300)), 32, 1e4) for start in range(0, 300, 77)]
    assert whole.tobytes() == np.concatenate(parts).tobytes()


def test_the_bits_are_pinned() -> None:
    """Every machine must make this table; a change here is a change of every model's answers."""
    digest = hashlib.sha256(rope_rows(range(8192), 64, 1e5).tobytes()).hexdigest()
    assert digest == "e599c913514d7401b35fda5e9f5215e0d9a02ea471999416299fb443c603e27d"
