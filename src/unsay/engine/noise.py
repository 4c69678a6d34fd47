"""The noise of sampling, keyed by place: one random word for each (seed, position, token), whenever it is asked for.

An edit leaves the draws of every other position alone, a replay draws the same, and no generator has to be rewound.
runtime/defined_scan.py makes the words:

    key      seed bits 0..31, 32..63
    counter  token // 4, position, domain, 0
    word     token % 4 of the four that Philox gives
"""

from __future__ import annotations

from unsay.engine import portable_math

NUM_SEEDS = 2**64
MAX_SPREAD = 26.1
"""The largest Gumbel noise less the smallest, as 32-bit words give them: 22.88 + 3.14, rounded up."""

_SEED_DOMAIN = 1
"""The words of tokens are of domain 0."""
_SCALE = 2.0**-32


def derive_seed(seed: int, choice: int) -> int:
    """The seed of the nth answer to one request (n > 1): the seed itself for 0, another for each of the others."""
    import numpy as np

    from unsay.runtime.philox import philox

    if choice == 0:
        return seed
    number, zero, domain = (np.array([word], np.uint64) for word in (choice, 0, _SEED_DOMAIN))
    high, low, _, _ = philox((number, zero, domain, zero), (seed & 0xFFFFFFFF, seed >> 32))
    return int(high[0]) << 32 | int(low[0])


def exponential(word: int) -> float:
    """The exponential variate of a word: -log u, u = (word + 1/2) / 2^32. Portable, so a decision may rest on it."""
    return -portable_math.log((word + 0.5) * _SCALE)
