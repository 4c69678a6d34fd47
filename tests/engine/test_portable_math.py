"""exp and log against the decimal module, and their results pinned bit for bit."""

from __future__ import annotations

import struct
from decimal import Decimal, localcontext

import numpy as np
import pytest

from unsay.engine import portable_arrays, portable_math


def error_in_ulps(value: float, exact: Decimal) -> float:
    return float(abs(Decimal(value) - exact) / Decimal(float(np.spacing(abs(value)))))


def samples(low: float, high: float) -> np.ndarray:
    rng = np.random.default_rng(5)
    return np.concatenate([rng.uniform(low, high, 300), np.linspace(low, high, 101)])


def logs(x: np.ndarray) -> np.ndarray:
    return np.array([portable_math.log(value) for value in x.tolist()])


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = samples(-699.0, 30.0)
    with localcontext() as context:
        context.prec = 40
        worst = max(error_in_ulps(y, Decimal(float(v)).exp()) for v, y in zip(x, portable_arrays.exp(x), strict=True))
    assert worst < 2


def test_log_is_within_two_units_in_the_last_place() -> None:
    x = np.concatenate([samples(2.0**-33, 1.0), samples(0.9999, 1.0001), 2.0 ** samples(-1000.0, 1000.0)])
    x = x[x != 1.0]
    with localcontext() as context:
        context.prec = 40
        worst = max(error_in_ulps(y, Decimal(float(v)).ln()) for v, y in zip(x, logs(x), strict=True))
    assert worst < 2


def test_log_of_one_is_zero_and_exp_of_zero_is_one() -> None:
    assert portable_math.log(1.0) == 0.0
    assert portable_arrays.exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]


def test_exp_far_below_is_zero() -> None:
    assert portable_arrays.exp(np.array([-701.0, -1e300]))[0] == 0.0


def test_exp_out_of_its_domain_is_a_fault() -> None:
    with pytest.raises(AssertionError):
        portable_arrays.exp(np.array([701.0]))


def test_the_bits_are_pinned_so_that_every_machine_agrees() -> None:
    x = np.array([-20.25, -1.0, 0.3, 1.0, 17.125])
    assert portable_arrays.exp(x).view(np.int64).tolist() == PINNED_EXP
    assert logs(np.abs(x)).view(np.int64).tolist() == PINNED_LOG


def test_the_coefficients_are_those_of_fdlibm() -> None:
    """As words, which e_log.c and e_exp.c have beside the decimals: a digit too far back to move a bit is seen too."""
    assert [struct.pack(">d", value).hex() for value in portable_math.COEFFICIENTS] == LOG_WORDS
    assert [struct.pack(">d", value).hex() for value in portable_arrays.COEFFICIENTS] == EXP_WORDS


LOG_WORDS = [
    "3fe5555555555593", "3fd999999997fa04", "3fd2492494229359", "3fcc71c51d8e78af", "3fc7466496cb03de",
    "3fc39a09d078c69f", "3fc2f112df3e5244",
]  # fmt: skip
EXP_WORDS = ["3fc555555555553e", "bf66c16c16bebd93", "3f11566aaf25de2c", "bebbbd41c5d26bf1", "3e66376972bea4d0"]
PINNED_EXP = [4475333236920666683, 4600298746774613816, 4608758042795448982, 4613303445314885482, 4718112596648770906]
PINNED_LOG = [4613956181203675422, 0, -4615271006209202399, 0, 4613578744856008134]
