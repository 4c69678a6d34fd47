"""Scores and values of int8 pages (N9): keys [D/4][16][4], values [4][D][4], a scale for each row.

Both are exact int32 dots with integers of 15 bits (long_dot.py): of a head's q, made once a part, and of its weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from unsay.compiler.codegen.builder import F32, F32X16, I32, I32X16, Slot, Value, vector
from unsay.compiler.codegen.kernels.attention_products import Products
from unsay.compiler.codegen.kernels.attention_run import PART_TOKENS, Part, Query
from unsay.compiler.codegen.kernels.long_dot import MOST, LongDot
from unsay.compiler.codegen.kernels.vector import LANES, largest, maximum, splat_load
from unsay.core import PAGE_TOKENS

_MOST_HEADS = {64: 4, 32: 3, 16: 4}
_REGISTERS = {64: 4, 32: 2, 16: 2}
"""Query heads and registers of int8 that are multiplied with each other at a time, by bytes of a register."""

_WORD_BYTES = 2
"""Of a multiplier."""

Places: TypeAlias = tuple[Value, ...]
"""Where the multipliers of a row are kept: words, or each of their planes (attention_tiles.py)."""


class IntegerProducts(Products):
    """Of pages whose elements are integers."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        rows = part.shape.run_tokens * part.shape.group
        self._queries = self.f.buffer(rows * self.dim * _WORD_BYTES)
        self._scales = self.f.buffer(rows * 4)
        self._dot = LongDot(self.f, part.unit)

    def begin(self, query: Query) -> None:
        """q of each head as multipliers; its scale times that of scores."""
        with self.f.loop("head", 0, self.part.shape.group) as head:
            q, row, peaks = self.part.q(query, head), self.part.row(query, head), self.f.slot(F32X16, 0.0)
            with self.f.loop("dim", 0, self.dim, LANES) as dim:
                self._note(peaks, self.f.load(F32X16, q.at(dim * 4), align=4))
            self._multipliers(row, self.dim, q, largest(self.f, peaks.get()), self._q_places(row))
            scale = self.f.load(F32, self._scale(row), align=4)
            self.f.store(scale * self.part.shape.scale, self._scale(row), align=4)

    def score(self, query: Query, block: Value) -> None:
        """s[t] = f32(q . k) * (ks[t] * (qs * scale))."""
        registers, lanes = _REGISTERS[self.part.unit.vector_bytes], self.lanes
        count = max(1, registers * lanes // PAGE_TOKENS)
        places = [(place, first) for place in range(count) for first in range(0, PAGE_TOKENS, lanes)]
        with self.pages(query, block, count) as page:
            for heads in self._heads():
                for at in range(0, len(places), registers):
                    self._score_registers(query, heads, page, places[at : at + registers])

    def weigh(self, query: Query) -> None:
        """w[t] = e[t] * vs[t] as multipliers."""
        f, part, pages = self.f, self.part, self._weighed_pages(query)
        with f.loop("head", 0, part.shape.group) as head:
            weights, row, peaks = part.score(query, head), part.row(query, head), f.slot(F32X16, 0.0)
            with f.loop("page", 0, pages) as page:
                address = weights.at(page * (PAGE_TOKENS * 4))
                e, zero = f.load(F32X16, address, align=64), f.constant(F32X16, 0.0)
                weight = f.select(e.compare("ole", 0.0), zero, e * self._value_scales(page))
                self._note(peaks, weight)
                f.store(weight, address, align=64)
            peak = largest(f, peaks.get())
            self._multipliers(row, pages * PAGE_TOKENS, weights, peak, self._weight_places(row))
        self._clear(query)

    def add_values(self, query: Query, block: Value) -> None:
        """o[d] = w . v as int32. Weights of keys that are not seen are 0, whatever bytes lie there."""
        for heads in self._heads():
            columns = self.columns(_REGISTERS[self.part.unit.vector_bytes])
            with self.f.loop("dim", 0, self.dim, len(columns) * self.lanes) as dim:
                self._add_columns(query, block, heads, columns, dim)

    def finish(self, query: Query) -> None:
        """o[d] = f32(o[d]) * the scale of the weights."""
        f = self.f
        with f.loop("head", 0, self.part.shape.group) as head:
            row = self.part.row(query, head)
            scale = splat_load(f, self._scale(row))
            with f.loop("dim", 0, self.dim, LANES) as dim:
                address = self.part.state(query).at((head * self.dim + dim) * 4)
                f.store(self._total(row, dim, address).cast("sitofp", F32X16) * scale, address, align=4)

    def _heads(self) -> Iterator[range]:
        return self.head_groups(_MOST_HEADS[self.part.unit.vector_bytes])

    def _scale(self, row: Value) -> Value:
        """Address of the scale of q of a row, later of its weights."""
        return self._scales.at(row * 4)

    def _note(self, peaks: Slot, x: Value) -> None:
        """The largest magnitudes so far."""
        peaks.set(maximum(self.f, peaks.get(), self.f.unary("fabs", x)))

    def _multipliers(self, row: Value, count: Value | int, source: Value, peak: Value, places: Places) -> None:
        """x f32 [count] at `source`, of magnitudes up to `peak`, as multipliers to `places`, which may be the same; and
        their scale."""
        f = self.f
        small, zero = peak.compare("olt", 2.0**-100), f.constant(F32, 0.0)
        f.store(f.select(small, zero, peak / MOST), self._scale(row), align=4)
        inverse = f.select(small, zero, f.constant(F32, MOST) / peak).splat(LANES)
        with f.loop("place", 0, count, LANES) as place:
            self._store(f.load(F32X16, source.at(place * 4), align=4) * inverse, place, places)

    def _store(self, x: Value, place: Value, places: Places) -> None:
        """16 multipliers from a place on."""
        self.f.store(self._dot.words(x), places[0].at(place * _WORD_BYTES), align=32)

    def _q_places(self, row: Value) -> Places:
        return (self._queries.at(row * (self.dim * _WORD_BYTES)),)

    def _weight_places(self, row: Value) -> Places:
        return (self.part.scores.at(row * (PART_TOKENS * 4)),)

    def _weighed_pages(self, query: Query) -> Value:
        return query.pages

    def _value_scales(self, page: Value) -> Value:
        return self._row_scales(self.part.page(page), "values", 0, LANES)

    def _clear(self, query: Query) -> None:
        """o = 0."""
        with self.f.loop("dim", 0, self.part.shape.group * self.dim, LANES) as dim:
            self.f.store(self.f.constant(I32X16, 0), self.part.state(query).at(dim * 4), align=4)

    def _total(self, row: Value, dim: Value, address: Value) -> Value:
        """o of 16 dims as int32. address: of where `add_values` has it."""
        return self.f.load(I32X16, address, align=4)

    def _score_registers(self, query: Query, heads: range, number: Value, places: Sequence[tuple[int, int]]) -> None:
        """Scores of some registers of keys: each (place of its page after `number`, its first token)."""
        f, part, lanes = self.f, self.part, self.lanes
        pages = {place: part.page(number + place) for place, _ in places}
        ahead = [self.after_keys(query, number + place) for place in pages]
        for place in pages:
            scales = part.page(number + (place + self.block_pages)).at(self.layout.scale_offset(0, 0))
            f.prefetch(scales)
            f.prefetch(scales.at(PAGE_TOKENS * 4))
        sums = self._dot.sums(len(places), len(heads))
        with f.loop("quad", 0, self.dim // 4) as quad:
            for page in ahead:
                f.prefetch(page.at(quad * (PAGE_TOKENS * 4)))
            data = [pages[place].at((quad * PAGE_TOKENS + first) * 4) for place, first in places]
            words = [self._q_places(part.row(query, h))[0].at(quad * 8) for h in heads]
            self._dot.add(sums, data, words)
        for (place, first), totals in zip(places, self._dot.totals(sums), strict=True):
            for head, total in zip(heads, totals, strict=True):
                scale = f.load(F32, self._scale(part.row(query, head)), align=4).splat(lanes)
                score = total.cast("sitofp", scale.type) * (
                    self._row_scales(pages[place], "keys", first, lanes) * scale
                )
                f.store(score, part.score(query, head, (number + place) * PAGE_TOKENS + first), align=4)

    def _row_scales(self, page: Value, of: Literal["keys", "values"], first: int, lanes: int) -> Value:
        """The scales of tokens of a page, from the `first` on."""
        offset = self.layout.scale_offset(0, 0) + (first + (0 if of == "keys" else PAGE_TOKENS)) * 4
        return self.f.load(vector(F32, lanes), page.at(offset), align=4)

    def _add_columns(self, query: Query, block: Value, heads: range, columns: range, dim: Value) -> None:
        f, part, kind = self.f, self.part, vector(I32, self.lanes)
        sums = self._dot.sums(len(columns), len(heads))
        with self.pages(query, block) as page:
            self.prefetch_after_values(query, page, dim, len(columns) * self.lanes)
            values = self.values(page).at(dim * 4)
            weights = [part.score(query, head).at(page * (PAGE_TOKENS * _WORD_BYTES)) for head in heads]
            for quad in range(PAGE_TOKENS // 4):
                data = [values.at((quad * self.dim + column) * 4) for column in columns]
                self._dot.add(sums, data, [row.at(quad * 8) for row in weights])
        for column, totals in zip(columns, self._dot.totals(sums), strict=True):
            for head, total in zip(heads, totals, strict=True):
                address = part.state(query).at((dim + (head * self.dim + column)) * 4)
                f.store(f.load(kind, address, align=4) + total, address, align=4)
