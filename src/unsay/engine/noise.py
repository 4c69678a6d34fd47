"""The noise of sampling, keyed by place: one random word for each (seed, position, token), whenever it is asked for.

An edit leaves the draws of every other position alone, a replay draws the same, and no generator has to be rewound.

    key      seed bits 0..31, 32..63
    counter  token // 4, position, domain, 0
    word     token % 4 of the four that Philox gives
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.engine import portable_math
from unsay.engine.philox import Counter, UInt64Array, philox

IdArray: TypeAlias = NDArray[np.int64]
WordArray: TypeAlias = NDArray[np.uint32]

NUM_SEEDS = 2**64
MAX_SPREAD = 26.1
"""The largest Gumbel noise less the smallest, as 32-bit words give them: 22.88 + 3.14, rounded up."""

_SAMPLE_DOMAIN, _SEED_DOMAIN = 0, 1
_WORDS = 4
_SCALE = 2.0**-32


def derive_seed(seed: int, choice: int) -> int:
    """The seed of the nth answer to one request (n > 1): the seed itself for 0, another for each of the others."""
    if choice == 0:
        return seed
    high, low, _, _ = _philox_at(np.array([choice], np.uint64), 0, _SEED_DOMAIN, seed)
    return int(high[0]) << 32 | int(low[0])


def words(seed: int, position: int, ids: IdArray) -> WordArray:
    """The word of each token of `ids` [N]."""
    four = _philox_at((ids // _WORDS).astype(np.uint64), position, _SAMPLE_DOMAIN, seed)
    return np.choose(ids % _WORDS, four).astype(np.uint32)


def words_of_range(seed: int, position: int, start: int, stop: int) -> WordArray:
    """The words of the tokens start..stop-1, at a quarter of the cost; start is a multiple of 4."""
    assert start % _WORDS == 0, start
    counters = np.arange(start // _WORDS, -(-stop // _WORDS), dtype=np.uint64)
    four = np.empty((counters.size, _WORDS), np.uint32)
    for column, word in enumerate(_philox_at(counters, position, _SAMPLE_DOMAIN, seed)):
        four[:, column] = word
    return four.reshape(-1)[: stop - start]


def exponential(word: WordArray) -> portable_math.Float64Array:
    """Exponential variates from words: -log u, u = (word + 1/2) / 2^32. Portable, so a decision may rest on it."""
    return -portable_math.log((word.astype(np.float64) + 0.5) * _SCALE)


def lower_bound(word: WordArray) -> NDArray[np.float32]:
    """1 - u, which is below -log u and close to it where that is small; to 2^-23."""
    return ((~word).astype(np.float32) + np.float32(0.5)) * np.float32(_SCALE)


def _philox_at(counters: UInt64Array, position: int, domain: int, seed: int) -> Counter:
    place, kind, zero = (np.full(counters.size, value, np.uint64) for value in (position, domain, 0))
    return philox((counters, place, kind, zero), (seed & 0xFFFFFFFF, seed >> 32))
