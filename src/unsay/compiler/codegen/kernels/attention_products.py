"""What both products of attention (N9) share, scores q . k and values o += w v: the pages they go over.

The keys of a part are gone over a block of pages at a time by all tokens of a run, then the values, so that a block is
fetched into the first cache once for all. While the first token of a run multiplies a block, the one after it is asked
for: of keys, then of values, then of the keys this thread multiplies next. Much further ahead it would be gone from the
first cache again before it is used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager

from unsay.compiler.codegen.builder import I64, Value
from unsay.compiler.codegen.kernels.attention_run import PART_PAGES, Part, Query
from unsay.core import PAGE_TOKENS

_BLOCK_BYTES = 8192
LINE_BYTES = 64


class Products(ABC):
    """For each query: `begin`, `score` of all blocks, `weigh`, `add_values` of all blocks, `finish`.

    A kind that multiplies all rows of a run together does that in `score_run` and `add_values_of_run`.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.f = part.f
        self.lanes = part.unit.lanes
        self.layout = part.shape.layout
        self.dim = self.layout.head_dim

    @property
    def block_pages(self) -> int:
        """Pages of a block: a power of two."""
        page_bytes = self.dim * PAGE_TOKENS * self.layout.element_bytes
        return max(count for count in (1, 2, 4, 8, PART_PAGES) if count <= 4 or count * page_bytes <= _BLOCK_BYTES)

    @abstractmethod
    def begin(self, query: Query) -> None:
        """What is needed of q."""

    @abstractmethod
    def score(self, query: Query, block: Value) -> None:
        """s[t] of the keys of the block that begins at this page of the part; beyond the last key seen anything."""

    @abstractmethod
    def weigh(self, query: Query) -> None:
        """From e to the weights that values are multiplied with; o = 0."""

    @abstractmethod
    def add_values(self, query: Query, block: Value) -> None:
        """o += w v of the keys of the block."""

    @abstractmethod
    def finish(self, query: Query) -> None:
        """o as f32."""

    def score_run(self, block: Value) -> None:
        """`score` for every query that sees keys of the block."""
        with self.part.queries(block * PAGE_TOKENS) as query:
            self.score(query, block)

    def add_values_of_run(self, block: Value) -> None:
        """`add_values` for every query that sees keys of the block."""
        with self.part.queries(block * PAGE_TOKENS) as query:
            self.add_values(query, block)

    def pages(self, query: Query, block: Value, step: int = 1) -> AbstractContextManager[Value]:
        """The pages of a block that the query sees."""
        return self.f.loop("page", block, self.f.smaller(block + self.block_pages, query.pages), step)

    def values(self, page: Value) -> Value:
        """Address of the values of a page."""
        return self.part.page(page).at(self.layout.value_offset(0, 0))

    def head_groups(self, most: int) -> Iterator[range]:
        """Query heads that go together, `most` or less, about the same number each time."""
        group = self.part.shape.group
        count = -(-group // -(-group // most))
        return (range(first, min(first + count, group)) for first in range(0, group, count))

    def columns(self, most: int) -> range:
        """The first columns of registers of a row of values that go together, `most` or less; they divide the row."""
        row = self.dim // self.lanes
        count = max(count for count in range(1, row + 1) if row % count == 0 and count <= max(1, most))
        return range(0, count * self.lanes, self.lanes)

    def after_keys(self, query: Query, page: Value) -> Value:
        """Address of what comes a block after the keys of a page; of its own keys if that is not to be asked for."""
        number, is_near = self._a_block_on(query, page)
        offset = self.f.select(is_near, self.f.constant(I64, 0), self.layout.value_offset(0, 0))
        return self.part.page(number).at(offset)

    def prefetch_after_values(self, query: Query, page: Value, dim: Value, num_dims: int) -> None:
        """Ask for a share of what comes a block after the values of a page: as large as these dims are of a page."""
        f, dim_bytes = self.f, PAGE_TOKENS * self.layout.element_bytes
        number, is_near = self._a_block_on(query, page)
        offset = f.select(is_near, f.constant(I64, self.layout.value_offset(0, 0)), 0)
        with f.when(query.place.compare("eq", 0)):
            head = f.select(is_near, self.part.page(number), self.part.next_page(number))
            for line in range(0, num_dims * dim_bytes, LINE_BYTES):
                f.prefetch(head.at(offset).at(dim * dim_bytes + line))
            if self.layout.is_scaled:
                f.prefetch(head.at(self.layout.scale_offset(0, 0)).at(dim * (2 * PAGE_TOKENS * 4 // self.dim)))

    def _a_block_on(self, query: Query, page: Value) -> tuple[Value, Value]:
        """(number of the page a block after this one, true), or (its number among those that follow, false) if the part
        has no such block. For all but the first token of a run, the page itself."""
        f, size = self.f, self.block_pages
        length = (self.part.pages + (size - 1)) // size * size
        number = f.select(query.place.compare("eq", 0), page + size, page)
        is_near = number.compare("slt", length)
        return f.select(is_near, number, number - length), is_near
