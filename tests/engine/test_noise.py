"""Noise is a function of seed, position and token."""

from __future__ import annotations

import numpy as np
import pytest

from unsay.engine import noise, portable_math
from unsay.runtime.defined_scan import words
from unsay.runtime.philox import philox

V = 997


def test_a_larger_vocabulary_does_not_change_a_token() -> None:
    assert np.array_equal(words(7, 30, 4 * V)[:V], words(7, 30, V))


def test_a_word_is_that_of_its_counter() -> None:
    counter = tuple(np.array([value], np.uint64) for value in (245, 30, 0, 0))
    four = philox((counter[0], counter[1], counter[2], counter[3]), (7, 3))
    assert words(7 + (3 << 32), 30, V)[980:984].tolist() == [int(word[0]) for word in four]


@pytest.mark.parametrize("other", [(8, 30), (7, 31), (7 + 2**32, 30), (7 + 2**63, 30)])
def test_seed_and_position_each_change_the_words(other: tuple[int, int]) -> None:
    assert not np.any(words(*other, V) == words(7, 30, V))


def test_words_are_uniform() -> None:
    drawn = words(1, 2, 1 << 16) / 2.0**32
    counts = np.histogram(drawn, bins=64, range=(0, 1))[0]
    assert abs(drawn.mean() - 0.5) < 0.005
    chi_squared = float((((counts - 1024) ** 2) / 1024).sum())
    assert chi_squared < 110, "63 degrees of freedom, p about 0.0002"


def test_the_spread_of_the_noise_is_what_pruning_assumes() -> None:
    low, high = (-portable_math.log(noise.exponential(word)) for word in (0, 2**32 - 1))
    assert high - low < noise.MAX_SPREAD < high - low + 0.2


def test_seeds_of_several_answers_differ_and_the_first_is_the_seed_itself() -> None:
    seeds = [noise.derive_seed(42, choice) for choice in range(50)]
    assert seeds[0] == 42
    assert len(set(seeds)) == 50
    assert all(0 <= seed < noise.NUM_SEEDS for seed in seeds)
    assert noise.derive_seed(43, 1) != noise.derive_seed(42, 1)
