"""The emulated fma and what is built on it, against exact rational arithmetic."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest

from unsay.runtime import arithmetic as ar

F32 = np.float32


def bits_of(x):
    return np.asarray(x, F32).view(np.uint32)


def round_to_f32(exact: Fraction, zero: float) -> float:
    """The f32 nearest to an exact value, ties to even; `zero` is the answer for an exact zero."""
    if exact == 0:
        return zero
    sign, magnitude = (-1.0, -exact) if exact < 0 else (1.0, exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    value = round(magnitude / step) * step  # Fraction rounds half to even
    return math.copysign(math.inf if value >= Fraction(2) ** 128 else float(value), sign)


def exact_fma(a, b, c):
    """One fma by rational arithmetic; a, b, c finite."""
    zero = float(F32(a) * F32(b)) + float(c) if a == 0 or b == 0 else 0.0
    return round_to_f32(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)), zero)


def check(a, b, c):
    with np.errstate(all="ignore"):
        got = ar.fma(a, b, c)
        want = np.array([exact_fma(*abc) for abc in zip(a, b, c, strict=True)], F32)
    assert got.dtype == F32
    different = np.flatnonzero(bits_of(got) != bits_of(want))
    assert not len(different), [(a[i], b[i], c[i], got[i], want[i]) for i in different[:3]]


def test_the_oracle_itself_rounds_as_the_machine_does():
    values = np.random.default_rng(0).integers(0, 2**64, 3000, np.uint64).view(np.float64)
    values = values[np.isfinite(values)] * 2.0 ** np.random.default_rng(1).integers(
        -3, 3, len(values[np.isfinite(values)])
    )
    with np.errstate(all="ignore"):
        for value in values[np.isfinite(values)].tolist():
            got = round_to_f32(Fraction(value), value)
            assert struct.pack("<f", got) == F32(value).tobytes()


def test_fma_of_random_bit_patterns():
    a, b, c = np.random.default_rng(2).integers(0, 2**32, (3, 20000), np.uint32).view(F32)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    check(a[finite], b[finite], c[finite])


def test_fma_where_product_and_addend_are_close():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 20000)).astype(F32)
    c = (-(a * b) * (1 + rng.integers(-3, 4, 20000) * F32(2**-23))).astype(F32)
    check(a, b, c)


def test_fma_at_ties_and_one_step_beside_them():
    """Products that land on the midpoint of two f32 with the addend, plus a bit far below: the double-rounding trap."""
    rng = np.random.default_rng(4)
    odd = (rng.integers(2**23, 2**24, 8000) | 1).astype(F32)
    tiny = rng.choice(np.array([0.0, 2.0**-40, -(2.0**-40), 2.0**-60, -(2.0**-60), 2.0**-149], F32), 8000)
    half = F32(0.5) * np.ones(8000, F32)
    check(half, np.ones(8000, F32), odd)
    check(odd, F32(1.5) * np.ones(8000, F32), tiny)
    check(odd * F32(2**-30), F32(1 + 2**-23) * np.ones(8000, F32), tiny)
    near_half = (half.view(np.int32) + rng.integers(-1, 2, 8000).astype(np.int32)).view(F32)
    check(near_half, np.ones(8000, F32), odd)
    check(
        (1 + rng.integers(0, 3, 8000) * F32(2**-12)).astype(F32),
        (1 + rng.integers(0, 3, 8000) * F32(2**-12)).astype(F32),
        rng.choice(np.array([2.0**24, 2.0**23, -(2.0**24), 2.0**-24, 2.0**-49, -(2.0**-49)], F32), 8000),
    )


def test_fma_among_denormals():
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2**24, 20000, np.uint32).view(F32)
    b = np.concatenate([rng.uniform(-2, 2, 10000), rng.uniform(-(2.0**-20), 2.0**-20, 10000)]).astype(F32)
    c = rng.integers(0, 2**24, 20000, np.uint32).view(F32) * rng.choice(np.array([1, -1, 0], F32), 20000)
    check(a, b, c)
    small = (2.0 ** rng.uniform(-80, -60, 20000)).astype(F32)
    check(small, small[::-1], c)


def test_fma_at_overflow():
    top = np.finfo(F32).max
    rng = np.random.default_rng(6)
    b = (1 + rng.integers(-2, 3, 4000) * F32(2**-23)).astype(F32)
    c = rng.choice(np.array([2.0**103, 2.0**102, -(2.0**103), 2.0**78, -(2.0**78), 2.0**-149, 0], F32), 4000)
    check(np.full(4000, top), b, c)
    check(np.full(4000, -top), b, c)


def test_fma_signs_of_zero_and_infinities():
    zeros = np.array([0.0, -0.0, 1.0, -1.0], F32)
    a, b, c = (axis.ravel() for axis in np.meshgrid(zeros, zeros, zeros))
    check(a, b, c)
    inf = np.array([np.inf, 1, -np.inf], F32)
    with np.errstate(all="ignore"):
        assert np.array_equal(ar.fma(inf, F32(2), F32(1)), [np.inf, 3, -np.inf])
        assert np.isnan(ar.fma(F32(np.inf), F32(1), F32(-np.inf)))


def test_fma_broadcasts():
    out = ar.fma(np.ones((3, 1), F32), np.ones((1, 4), F32), np.ones((), F32))
    assert out.shape == (3, 4) and (out == 2).all()


def scalar_sum16(x, square):
    lanes = [F32(0)] * 16
    for i, value in enumerate(x):
        lanes[i % 16] = F32(exact_fma(value, value, lanes[i % 16])) if square else lanes[i % 16] + value
    for half in (8, 4, 2, 1):
        for j in range(half):
            lanes[j] = lanes[j] + lanes[j + half]
    return lanes[0]


@pytest.mark.parametrize("n", [1, 15, 16, 17, 40, 64])
def test_horizontal_sums_follow_the_lanes_and_the_tree(n):
    x = np.random.default_rng(n).standard_normal((3, n)).astype(F32)
    assert np.array_equal(ar.sum16(x), [scalar_sum16(row, False) for row in x])
    assert np.array_equal(ar.dot16(x), [scalar_sum16(row, True) for row in x])


def test_exp_is_close_to_exp_and_cut_at_the_ends():
    x = np.linspace(-87.32, 88, 100001).astype(F32)
    error = np.abs(ar.exp(x).astype(np.float64) / np.exp(x.astype(np.float64)) - 1)
    assert error.max() < 2e-7
    ends = ar.exp(np.array([0.0, -87.34, -np.inf, 88, 89, np.inf], F32))
    assert ends[0] == 1 and ends[1] == ends[2] == 0 and ends[3] == ends[4] == ends[5] and np.isfinite(ends[3])
    assert bits_of(ends[1]) == 0


def test_exp_step_by_step_against_rational_fma():
    for x in np.random.default_rng(8).uniform(-80, 80, 200).astype(F32):
        n = np.rint(x * F32(1.44269504088896341))
        r = F32(exact_fma(n, F32(2.12194440e-4), F32(exact_fma(n, F32(-0.693359375), x))))
        p = F32(1.9875691500e-4)
        for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
            p = F32(exact_fma(p, r, F32(c)))
        y = F32(exact_fma(p, r * r, r)) + F32(1)
        assert ar.exp(np.array([x]))[0] == y * F32(2.0 ** float(n))


def test_quantise_blocks():
    x = np.random.default_rng(9).standard_normal((2, 96)).astype(F32)
    x[1, 32:64] = 2.0**-101
    q, scale, total = ar.quantise(x)
    assert q.dtype == np.int8 and scale.shape == total.shape == (2, 3)
    assert scale[1, 1] == 0 and not q[1, 32:64].any()
    assert np.abs(q).reshape(2, 3, 32).max(-1)[0].tolist() == [127, 127, 127]
    assert np.array_equal(total, q.reshape(2, 3, 32).astype(int).sum(-1))
    assert np.abs(q * np.repeat(scale, 32, axis=-1) - x).max() < 0.02


def test_rotation_keeps_length_and_angle_zero_keeps_bits():
    x = np.random.default_rng(10).standard_normal((5, 8)).astype(F32)
    assert np.array_equal(ar.rotate(x, np.ones(4, F32), np.zeros(4, F32)), x)
    angle = np.random.default_rng(11).uniform(0, 6, (5, 4))
    turned = ar.rotate(x, np.cos(angle).astype(F32), np.sin(angle).astype(F32))
    assert np.allclose(ar.dot16(turned), ar.dot16(x), rtol=1e-5)
