"""Philox4x32-10 against the vectors published with Random123 (kat_vectors)."""

from __future__ import annotations

import numpy as np
import pytest

from unsay.runtime.philox import philox

VECTORS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    c0, c1, c2, c3 = (np.array([word], np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in philox((c0, c1, c2, c3), key)) == expected


def test_many_counters_at_once_are_each_by_itself() -> None:
    columns = np.array([counter for counter, _, _ in VECTORS], np.uint64).T
    words = philox((columns[0], columns[1], columns[2], columns[3]), VECTORS[2][1])
    assert tuple(int(word[2]) for word in words) == VECTORS[2][2]
    assert columns[0].tolist() == [counter[0] for counter, _, _ in VECTORS], "the counters are left alone"
