"""The page pool: exact counts, lazy commitment, memory given back."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kv.test_tree import resident_bytes
from unsay.errors import RequestError
from unsay.kv.pages import PagePool

PAGE_BYTES = 64 * mmap.PAGESIZE


def test_an_unused_pool_takes_no_memory() -> None:
    before = resident_bytes()
    pool = PagePool(PAGE_BYTES, 100_000)
    assert pool.memory.shape == (100_000, PAGE_BYTES)
    assert resident_bytes() - before < 2 << 20


def test_cooled_pages_take_no_memory_and_can_be_used_again() -> None:
    pool = PagePool(PAGE_BYTES, 512)
    before = resident_bytes()
    pages = [pool.allocate() for _ in range(512)]
    np.asarray(pool.memory)[:] = 1
    full = resident_bytes()
    for page in pages:
        assert page is not None
        pool.free(page)
    while (page := pool.take_excess()) is not None:
        pool.discard(page)
        pool.put_cold()
    assert full - before > 500 * PAGE_BYTES
    assert resident_bytes() - before < 16 * PAGE_BYTES
    assert 0 < pool.num_warm < 16
    assert {pool.allocate() for _ in range(512)} == set(range(512))


@pytest.mark.parametrize("page_bytes", [3 * mmap.PAGESIZE // 2, mmap.PAGESIZE // 4, 5 * mmap.PAGESIZE // 2])
def test_discarding_a_page_that_is_not_whole_pages_of_the_system_spares_its_neighbours(page_bytes: int) -> None:
    """As where the system's pages have 64 KiB."""
    pool = PagePool(page_bytes, 8)
    for page in range(8):
        assert pool.allocate() == page
    for discarded in (2, 3, 7):
        memory = np.asarray(pool.memory)
        memory[:] = 1
        pool.discard(discarded)
        others = [page for page in range(8) if page != discarded]
        assert (memory[others] == 1).all()
        assert (memory[discarded] == 0).sum() >= page_bytes - 2 * mmap.PAGESIZE


def test_allocate_returns_none_when_full_and_works_again_after_a_free() -> None:
    pool = PagePool(PAGE_BYTES, 3)
    assert sorted(page for page in (pool.allocate(), pool.allocate(), pool.allocate()) if page is not None) == [0, 1, 2]
    assert pool.allocate() is None
    pool.free(1)
    assert pool.allocate() == 1


def test_a_double_free_is_refused() -> None:
    pool = PagePool(PAGE_BYTES, 3)
    page = pool.allocate()
    assert page is not None
    pool.free(page)
    with pytest.raises(AssertionError, match="free already"):
        pool.free(page)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_pool_of_nothing_is_refused(capacity: int) -> None:
    with pytest.raises(RequestError, match="at least 1 page"):
        PagePool(PAGE_BYTES, capacity)


def test_a_pool_beyond_the_address_space_is_refused() -> None:
    with pytest.raises(RequestError, match="kv_tokens"):
        PagePool(PAGE_BYTES, 1 << 60)


@given(st.lists(st.integers(-20, 20), max_size=60))
def test_counts_are_exact(operations: list[int]) -> None:
    """Non-negative: allocate; negative: free the page held at that place."""
    pool = PagePool(mmap.PAGESIZE, 12)
    held: list[int] = []
    for operation in operations:
        if operation >= 0:
            page = pool.allocate()
            assert (page is None) == (len(held) == 12)
            if page is not None:
                assert page not in held
                held.append(page)
        elif held:
            pool.free(held.pop(operation % len(held)))
        assert pool.num_used == len(held)
        assert all(pool.is_used(page) == (page in held) for page in range(12))
