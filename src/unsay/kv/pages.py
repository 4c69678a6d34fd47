"""The pool KV pages are taken from: one anonymous mapping, committed by the system only where it is written."""

from __future__ import annotations

import ctypes
import mmap
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from threading import get_ident

from unsay.errors import RequestError
from unsay.runtime.buffers import address_of

_MAP_NORESERVE = 0x4000
_NUM_WARM_PAGES = 8
"""Freed pages kept committed, so that what is sampled after a rollback faults nothing in."""

_madvise = ctypes.CDLL(None, use_errno=True).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class PagePool:
    """`capacity_pages` pages of `page_bytes`, each free or in use; the caller serialises the calls (kv.tree's lock).

    memory: bytes [capacity, page_bytes]. num_used: pages allocated and not freed. A page never used takes no memory of
    the machine. A freed one is warm: it still does, and is allocated again first, with the bytes of its last life.
    Too many warm pages are cooled in three calls, of which the slow one, discard, may run beside any other:

        take_excess() -> page, discard(page), put_cold()
    """

    def __init__(self, page_bytes: int, capacity_pages: int) -> None:
        assert page_bytes > 0, page_bytes
        if capacity_pages < 1:
            raise RequestError(f"a KV pool of {capacity_pages} pages holds nothing: give at least 1 page (16 tokens)")
        self.page_bytes = page_bytes
        self.capacity = capacity_pages
        self._bytes = memoryview(_map_lazily(page_bytes * capacity_pages))
        self._address = address_of(self._bytes)
        self.memory = self._bytes.cast("B", (capacity_pages, page_bytes))
        self._in_use = bytearray(capacity_pages)
        self.num_used = 0
        self._num_touched = 0
        self._warm: deque[int] = deque()
        self._cold: list[int] = []
        self._cooling: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        """Pages that can be allocated now."""
        return len(self._warm) + len(self._cold) + self.capacity - self._num_touched

    @property
    def num_warm(self) -> int:
        """Free pages that still take memory of the machine."""
        return len(self._warm)

    def is_used(self, page: int) -> bool:
        """Whether this page is allocated."""
        return self._in_use[page] == 1

    def allocate(self) -> int | None:
        """Index of a page that is now in use; None when all are."""
        page = self._pick()
        if page is not None:
            self._in_use[page] = 1
            self.num_used += 1
        return page

    def _pick(self) -> int | None:
        """A warm page before a cold one before one never used."""
        if self._warm:
            return self._warm.pop()
        if self._cold:
            return self._cold.pop()
        if self._num_touched == self.capacity:
            return None
        self._num_touched += 1
        return self._num_touched - 1

    def copy(self, source: int, target: int) -> None:
        """The bytes of one page into another."""
        size = self.page_bytes
        self._bytes[target * size : (target + 1) * size] = self._bytes[source * size : (source + 1) * size]

    def free(self, page: int) -> None:
        """Take a page back, warm."""
        assert self._in_use[page] == 1, f"page {page} is free already"
        self._in_use[page] = 0
        self.num_used -= 1
        self._warm.append(page)

    def take_excess(self) -> int | None:
        """A page to be discarded by this thread, of those freed first; None when few enough are warm."""
        if self._cooling:
            self.put_cold()  # one whose discarding was cut short
        if len(self._warm) <= _NUM_WARM_PAGES:
            return None
        page = self._cooling[get_ident()] = self._warm[0]
        del self._warm[0]
        return page

    def discard(self, page: int) -> None:
        """Give the page's memory back to the system; other Python threads run meanwhile.

        All but the ends it shares with its neighbours, where the system's pages are no divisors of ours (64 KiB). It no
        longer counts as the process's; of a huge page with others in it, the system takes it when it runs short.
        """
        start = -(-page * self.page_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (page + 1) * self.page_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if start < end:
            result = _madvise(self._address + start, end - start, mmap.MADV_DONTNEED)
            assert result == 0, (page, ctypes.get_errno())

    def put_cold(self) -> None:
        """The page this thread has discarded can be allocated again."""
        thread = get_ident()
        if thread in self._cooling:
            self._cold += [self._cooling[thread]]
            del self._cooling[thread]

    def forget_threads(self) -> None:
        """Nobody discards a page any more."""
        self._cold += self._cooling.values()
        self._cooling = {}

    def recount(self, used: Iterable[int]) -> None:
        """Just these are in use. Nobody is between two calls, but for threads that discard."""
        in_use = bytearray(self.capacity)
        for page in used:
            in_use[page] = 1
        elsewhere = {*self._cold, *self._cooling.values()}
        free = (page for page in range(self._num_touched) if not in_use[page] and page not in elsewhere)
        self._warm, self._in_use, self.num_used = deque(free), in_use, sum(in_use)


def _map_lazily(num_bytes: int) -> mmap.mmap:
    """Private anonymous memory that counts against nothing until it is written, 2 MiB at a time where the system can:
    a token reads a little of every page, and would wait for the address of each."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    try:
        mapped = mmap.mmap(-1, num_bytes, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without them
                mapped.madvise(mmap.MADV_HUGEPAGE)
        return mapped
    except (OSError, OverflowError) as error:
        raise RequestError(
            f"no address space for a KV pool of {num_bytes >> 20} MiB ({error}): ask for fewer tokens (kv_tokens)"
        ) from error
