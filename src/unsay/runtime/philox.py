"""Philox4x32-10, a counter-based random generator: word = f(key, counter), with no state to carry, save or rewind.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

UInt64Array: TypeAlias = NDArray[np.uint64]
Counter: TypeAlias = tuple[UInt64Array, UInt64Array, UInt64Array, UInt64Array]

_ROUNDS = 10
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox(counter: Counter, key: tuple[int, int]) -> Counter:
    """Four random words (32 bits in uint64) for each counter of four 32-bit words [N].

    Works in place on copies: half the time of the plain expression at the size of a vocabulary.
    """
    c0, c1, c2, c3 = (word.copy() for word in counter)
    k0, k1 = key
    for _ in range(_ROUNDS):
        c0 *= _MULTIPLIER_0
        c2 *= _MULTIPLIER_1
        c1 ^= c2 >> _HALF
        c1 ^= np.uint64(k0)
        c3 ^= c0 >> _HALF
        c3 ^= np.uint64(k1)
        c0 &= _LOW
        c2 &= _LOW
        c0, c1, c2, c3 = c1, c2, c3, c0
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return c0, c1, c2, c3
