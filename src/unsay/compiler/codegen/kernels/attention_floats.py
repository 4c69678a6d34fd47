"""Scores and values of f16 or f32 pages (N9): keys [D][16], values [16][D], multiplied as f32 in order.

Sums over even dims are made and put aside, then those over odd ones: there are registers for one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from unsay.compiler.codegen.builder import F16, F32, F32X16, Slot, Value, vector
from unsay.compiler.codegen.kernels.attention_products import LINE_BYTES, Products
from unsay.compiler.codegen.kernels.attention_run import Query
from unsay.compiler.codegen.kernels.vector import LANES
from unsay.core import PAGE_TOKENS
from unsay.isa.formats import DType

_NUM_SUMS = {64: 24, 32: 12, 16: 24}
"""Registers for sums, by bytes of a register: of 32, 16 and 32; the rest hold what is multiplied."""


class FloatProducts(Products):
    """Of pages whose elements are numbers."""

    def begin(self, query: Query) -> None:
        """q is multiplied as it is."""

    def score(self, query: Query, block: Value) -> None:
        """s[t] = (even + odd) * scale."""
        for heads in self._heads():
            count = self._pages_at_once(len(heads))
            with self.pages(query, block, count) as page:
                self._score_pages(query, heads, [page + place for place in range(count)])

    def weigh(self, query: Query) -> None:
        """Weights are e."""
        with self.f.loop("dim", 0, self.part.shape.group * self.dim, LANES) as dim:
            self.f.store(self.f.constant(F32X16, 0.0), self.part.state(query).at(dim * 4), align=4)

    def add_values(self, query: Query, block: Value) -> None:
        """o[d] = fma(w[t], v[t][d], o[d]) for t in order."""
        for heads in self._heads():
            columns = self.columns(self._num_sums // len(heads))
            with self.f.loop("dim", 0, self.dim, len(columns) * self.lanes) as dim:
                self._add_columns(query, block, heads, columns, dim)

    def finish(self, query: Query) -> None:
        """o is f32 all the time."""

    @property
    def _num_sums(self) -> int:
        return _NUM_SUMS[self.part.unit.vector_bytes]

    def _heads(self) -> Iterator[range]:
        return self.head_groups(self._num_sums // (PAGE_TOKENS // self.lanes))

    def _pages_at_once(self, num_heads: int) -> int:
        """Pages whose sums fit."""
        registers = num_heads * PAGE_TOKENS // self.lanes
        return max(count for count in (1, 2, 4) if count == 1 or count * registers <= self._num_sums)

    def _score_pages(self, query: Query, heads: range, numbers: Sequence[Value]) -> None:
        f, part = self.f, self.part
        pages = [part.page(number) for number in numbers]
        ahead = [self.after_keys(query, number) for number in numbers]
        for (place, first, head), total in self._dots(query, heads, pages, 0, ahead).items():
            f.store(total.get(), part.score(query, head, numbers[place] * PAGE_TOKENS + first), align=4)
        for (place, first, head), total in self._dots(query, heads, pages, 1).items():
            even = f.load(total.type, part.score(query, head, numbers[place] * PAGE_TOKENS + first), align=4)
            score = (even + total.get()) * part.shape.scale
            f.store(score, part.score(query, head, numbers[place] * PAGE_TOKENS + first), align=4)

    def _dots(
        self, query: Query, heads: range, pages: Sequence[Value], odd: Literal[0, 1], ahead: Sequence[Value] = ()
    ) -> dict[tuple[int, int, int], Slot]:
        """Over d = odd, odd + 2 ...: fma(k[t][d], q[d], sum), by (place in pages, first token of a register, head).

        ahead: pages to ask for meanwhile.
        """
        f, lanes, dim_bytes = self.f, self.lanes, PAGE_TOKENS * self.layout.element_bytes
        places = [(place, first) for place in range(len(pages)) for first in range(0, PAGE_TOKENS, lanes)]
        sums = {(*at, head): f.slot(vector(F32, lanes), 0.0) for at in places for head in heads}
        with f.loop("dim", odd, self.dim, 2) as dim:
            for address in ahead:
                for line in range(0, 2 * dim_bytes, LINE_BYTES):
                    f.prefetch(address.at(dim * dim_bytes + line))
            q = [self.part.q(query, head).at(dim * 4) for head in heads]
            k = [pages[place].at(dim * dim_bytes + first * self.layout.element_bytes) for place, first in places]
            self._add_products(q, k, [[sums[*at, head] for head in heads] for at in places])
        return sums

    def _add_columns(self, query: Query, block: Value, heads: range, columns: range, dim: Value) -> None:
        f, part, size = self.f, self.part, self.layout.element_bytes
        kind = vector(F32, self.lanes)
        places = {(c, h): part.state(query).at((dim + (h * self.dim + c)) * 4) for c in columns for h in heads}
        sums = {at: f.slot(kind, f.load(kind, place, align=4)) for at, place in places.items()}
        with self.pages(query, block) as page:
            self.prefetch_after_values(query, page, dim, len(columns) * self.lanes)
            values = self.values(page).at(dim * size)
            with f.loop("row", 0, f.smaller(query.keys - page * PAGE_TOKENS, PAGE_TOKENS)) as row:
                w = [part.score(query, head, page * PAGE_TOKENS + row) for head in heads]
                v = [values.at((row * self.dim + column) * size) for column in columns]
                self._add_products(w, v, [[sums[column, head] for head in heads] for column in columns])
        for at, place in places.items():
            f.store(sums[at].get(), place, align=4)

    def _add_products(self, factors: Sequence[Value], registers: Sequence[Value], sums: list[list[Slot]]) -> None:
        """sum = fma(register, factor, sum), of each register of elements with each factor, all at these addresses.

        A factor is loaded where it is first needed, behind the first register.
        """
        f = self.f
        splats: list[Value] = []
        for address, of_register in zip(registers, sums, strict=True):
            elements = self._elements(address)
            for place, (factor, total) in enumerate(zip(factors, of_register, strict=True)):
                if place == len(splats):
                    splats.append(f.load(F32, factor, align=4).splat(self.lanes))
                total.set(f.fma(elements, splats[place], total.get()))

    def _elements(self, address: Value) -> Value:
        """A register of elements of a page, exactly."""
        f, kind = self.f, vector(F32, self.lanes)
        if self.layout.dtype is DType.F32:
            return f.load(kind, address, align=4)
        return f.load(vector(F16, self.lanes), address, align=2).cast("fpext", kind)
