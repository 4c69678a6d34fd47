"""Noise is a function of seed, position and token."""

from __future__ import annotations

import numpy as np
import pytest

from unsay.engine import noise, portable_math

V = 997


@pytest.mark.parametrize("ids", [[0], [996], [3, 4, 5, 6, 7], list(range(0, 997, 2))])
def test_words_of_some_tokens_are_those_of_all(ids: list[int]) -> None:
    whole = noise.words_of_range(7, 30, 0, V)
    assert whole.shape == (V,)
    assert np.array_equal(noise.words(7, 30, np.array(ids)), whole[ids])


def test_a_range_may_begin_anywhere_in_fours() -> None:
    assert np.array_equal(noise.words_of_range(7, 30, 8, 23), noise.words_of_range(7, 30, 0, V)[8:23])
    with pytest.raises(AssertionError):
        noise.words_of_range(7, 30, 9, 23)


def test_a_larger_vocabulary_does_not_change_a_token() -> None:
    assert np.array_equal(noise.words_of_range(7, 30, 0, 4 * V)[:V], noise.words_of_range(7, 30, 0, V))


@pytest.mark.parametrize("other", [(8, 30), (7, 31), (7 + 2**32, 30), (7 + 2**63, 30)])
def test_seed_and_position_each_change_the_words(other: tuple[int, int]) -> None:
    assert not np.any(noise.words_of_range(*other, 0, V) == noise.words_of_range(7, 30, 0, V))


def test_words_are_uniform() -> None:
    words = noise.words_of_range(1, 2, 0, 1 << 16) / 2.0**32
    counts = np.histogram(words, bins=64, range=(0, 1))[0]
    assert abs(words.mean() - 0.5) < 0.005
    chi_squared = float((((counts - 1024) ** 2) / 1024).sum())
    assert chi_squared < 110, "63 degrees of freedom, p about 0.0002"


def test_the_bound_is_below_the_variate_and_close_where_it_matters() -> None:
    words = np.concatenate([noise.words_of_range(1, 2, 0, V), np.array([0, 1, 2**32 - 1], np.uint32)])
    variate, bound = noise.exponential(words), noise.lower_bound(words)
    assert np.all(bound <= variate * (1 + 1e-6))
    assert np.all(variate[variate < 0.01] - bound[variate < 0.01] < 1e-4)


def test_the_spread_of_the_noise_is_what_pruning_assumes() -> None:
    ends = -portable_math.log(noise.exponential(np.array([0, 2**32 - 1], np.uint32)))
    assert ends[1] - ends[0] < noise.MAX_SPREAD < ends[1] - ends[0] + 0.2


def test_seeds_of_several_answers_differ_and_the_first_is_the_seed_itself() -> None:
    seeds = [noise.derive_seed(42, choice) for choice in range(50)]
    assert seeds[0] == 42
    assert len(set(seeds)) == 50
    assert all(0 <= seed < noise.NUM_SEEDS for seed in seeds)
    assert noise.derive_seed(43, 1) != noise.derive_seed(42, 1)
