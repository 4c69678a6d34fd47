"""T5: the bounds are proved, tighter ones are refuted, and the definition stays within them."""

import numpy as np
import pytest

from unsay.compiler.verify import bounds
from unsay.compiler.verify.obligation import Status
from unsay.runtime import arithmetic


def test_rounding_to_blocks_keeps_its_bound_and_half_a_step_more_does_not():
    assert bounds.prove_rounding().status is Status.PROVED
    assert bounds.prove_rounding(16256, 2.0**-7).status is Status.PROVED
    assert bounds.prove_rounding(half=0.51).status is Status.REFUTED
    assert bounds.prove_rounding(16256, 2.0**-14).status is Status.REFUTED


def test_a_sum_grows_by_one_rounding_a_term_and_no_less():
    assert bounds.prove_summing().status is Status.PROVED
    assert bounds.prove_summing(lambda g, u: g).status is Status.REFUTED
    assert bounds.prove_summing(lambda g, u: g + u / 2).status is Status.REFUTED


def test_a_weighted_mean_stays_within_its_values():
    assert bounds.prove_averaging().status is Status.PROVED


def test_blocks_of_the_definition_are_within_the_proved_distance():
    size = 10.0 ** np.arange(-29, 35)[:, None]
    x = (np.random.default_rng(5).standard_normal((64, 96)) * size).astype(np.float32)
    q, scale, _ = arithmetic.quantise(x)
    step = scale.astype(np.float64).repeat(32, axis=1)
    assert (np.abs(x - q * step) <= step / 2 * (1 + 2.0**-14)).all()
    made = arithmetic.quantise_wide(x)
    step = made.scale.astype(np.float64).repeat(32, axis=1)
    wide = made.lo + 128 * made.hi.astype(np.int64)
    assert (np.abs(x - wide * step) <= step / 2 * (1 + 2.0**-7)).all()


@pytest.mark.parametrize("n", [16, 96, 576, 1536])
def test_sums_of_the_definition_are_within_the_proved_distance(n: int):
    x = np.random.default_rng(n).standard_normal((50, n)).astype(np.float32)
    wide = x.astype(np.float64)
    for made, real in ((arithmetic.sum16(x), wide), (arithmetic.dot16(x), wide * wide)):
        limit = bounds.horizontal_sum(n).factor * np.abs(real).sum(axis=-1)
        assert (np.abs(made - real.sum(axis=-1)) <= limit).all()


def test_exp_of_the_definition_is_measured_not_proved():
    x = np.linspace(-87.3, 88.0, 200_001).astype(np.float32)
    real = np.exp(x.astype(np.float64))
    error = np.abs(arithmetic.exp(x).astype(np.float64) - real) / real
    assert error.max() < 2.0**-23
