"""Scores and values of int8 pages (N9) on AMX tiles: both sums of attention_integers.py, of all rows of a run together.

A row is a query head of a token. Integers of 15 bits are 128 * hi + lo, so a sum is two of tdpbssd, exact (amx.py).

    q        hi int8 [rows][D] | lo int8 [rows][D]
    weights  hi int8 [rows][256], where their f32 have been | lo int8 [rows][256]

    scores   for 16 rows, for two pages: sums [16 rows][16 keys] of q and keys [D/4][16][4], as they lie in a page
             c columns of D at a time, as many as divide D, up to 64; then f32, masked, to the scores of the run
    values   for 16 rows, for 32 dims: sums [16 rows][16 dims] of weights and values of 64 keys [16][D][4], which are
             pages one behind the other; they are copied to lie so

Fewer than 16 rows are fewer rows of a tile; of more, the last tile ends with the run, and does again what it shares
with the one before. Pages are gone over by fours: beyond the last one it stands for those that follow, its keys are not
seen, and weights of what is not seen are 0. A thread holds tiles for the scores of a run, then for its values.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager

from unsay.compiler.codegen.builder import F32X16, I8, I32, I32X16, Value, vector
from unsay.compiler.codegen.kernels.attention_integers import IntegerProducts, Places
from unsay.compiler.codegen.kernels.attention_products import LINE_BYTES
from unsay.compiler.codegen.kernels.attention_run import PART_PAGES, PART_TOKENS, Part, Query
from unsay.compiler.codegen.kernels.tile_registers import TILE_BYTES, TILE_ROWS, amx, columns_of_tile, configure
from unsay.compiler.codegen.kernels.vector import LANES, splat_load
from unsay.core import PAGE_TOKENS

FEWEST_ROWS = 6
"""Rows of a run that go on tiles. By count of instructions one row pays over a whole part, two over a page; but a
step of so few waits for memory, and only vectors ask for it ahead (docs/decisions/014-tiles.md)."""

_KEYS = 64
"""Keys whose values are multiplied at a time."""

_SUMS, _X, _OTHERS = ((0, 1), (2, 3)), (4, 5), (6, 7)
"""Numbers of tiles: by plane and page or dims, by plane, by page or dims."""

_SCORE_BYTES = PART_TOKENS * 4
"""Of a row."""


class TileProducts(IntegerProducts):
    """Of pages whose elements are integers, for runs of at least FEWEST_ROWS rows."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        f, self._room = self.f, part.shape.run_tokens * part.shape.group
        self._keys_seen = f.buffer(self._room * 4)
        self._scales_of_values = f.buffer(PART_TOKENS * 4)
        self._low_weights = f.buffer(self._room * PART_TOKENS)
        self._panel = f.buffer(PART_TOKENS * self.dim)
        self._sums = f.buffer(2 * self._room * self.dim * 4)
        self._rows, whole = part.rows, _KEYS // PAGE_TOKENS
        self._tile_rows = f.smaller(self._rows, TILE_ROWS)
        self._pages = (part.pages + (whole - 1)) // whole * whole

    @property
    def block_pages(self) -> int:
        """The whole part: a copy of its values stays in the first cache."""
        return PART_PAGES

    def begin(self, query: Query) -> None:
        """q of each head in planes, and the keys it sees."""
        super().begin(query)
        f, keys = self.f, query.keys.cast("trunc", I32)
        with f.loop("head", 0, self.part.shape.group) as head:
            f.store(keys, self._keys_seen.at(self.part.row(query, head) * 4), align=4)

    def score_run(self, block: Value) -> None:
        """s[t] = f32(q . k) * (ks[t] * (qs * scale)) of all rows, -inf where a key is not seen."""
        f, columns = self.f, columns_of_tile(self.dim)
        with f.loop("page", 0, self._pages) as page:
            scales = super()._value_scales(page)
            f.store(scales, self._scales_of_values.at(page * LINE_BYTES), align=64)
        configure(f, columns, self._tile_rows)
        products = f.buffer(4 * TILE_BYTES)
        with self._tiles() as first:
            if columns == self.dim:
                self._load_q(first, 0)
            with f.loop("page", 0, self._pages, 2) as page:
                pages = [self.part.page(page + place) for place in range(2)]
                self._zero(2)
                with f.loop("column", 0, self.dim, columns) as column:
                    if columns != self.dim:
                        self._load_q(first, column)
                    self._multiply([address.at(column * PAGE_TOKENS) for address in pages], PAGE_TOKENS * 4)
                self._store_sums([products.at(place * TILE_BYTES) for place in range(2)], 2 * TILE_BYTES, LINE_BYTES)
                for place, address in enumerate(pages):
                    self._finish_scores(first, page + place, address, products.at(place * TILE_BYTES))
        amx(f, "tilerelease")

    def add_values_of_run(self, block: Value) -> None:
        """o[d] = w . v as int32, in two planes, of all rows."""
        f = self.f
        self._copy_values()
        configure(f, _KEYS, self._tile_rows)
        with self._tiles() as first:
            start, groups = 0, self.dim // LANES
            for together in (2, 1):
                stop = groups - groups % together
                with f.loop(f"dims{together}.", start, stop, together) as group:
                    self._add_dims(first, group * LANES, together)
                start = stop
        amx(f, "tilerelease")

    @contextmanager
    def _tiles(self) -> Generator[Value]:
        """The first row of each tile."""
        with self.f.loop("tile", 0, self._rows, TILE_ROWS) as row:
            yield self.f.smaller(row, self._rows - self._tile_rows)

    def _load_q(self, first: Value, column: Value | int) -> None:
        for tile, plane in zip(_X, self._q_places(first), strict=True):
            amx(self.f, "tileloadd64", tile, plane.at(column), self.dim)

    def _zero(self, together: int) -> None:
        for sums in _SUMS:
            for number in sums[:together]:
                amx(self.f, "tilezero", number)

    def _multiply(self, others: list[Value], stride: int) -> None:
        """Add the products of both planes with what lies at these addresses, rows so far apart."""
        for tile, address in zip(_OTHERS, others, strict=False):
            amx(self.f, "tileloadd64", tile, address, stride)
        for sums, x in zip(_SUMS, _X, strict=True):
            for total, tile in zip(sums[: len(others)], _OTHERS, strict=False):
                amx(self.f, "tdpbssd", total, x, tile)

    def _store_sums(self, places: list[Value], plane_bytes: int, stride: int) -> None:
        """The sums of each of the others, those of lo behind those of hi, rows so far apart."""
        for plane, sums in enumerate(_SUMS):
            for number, place in zip(sums, places, strict=False):
                amx(self.f, "tilestored64", number, place.at(plane * plane_bytes), stride)

    def _finish_scores(self, first: Value, page: Value, address: Value, products: Value) -> None:
        """Scores of a page. address: of it; products: i32 [2 planes][2 pages][16 rows][16 keys]."""
        f, scales = self.f, self._row_scales(address, "keys", 0, LANES)
        lanes = Value(f, I32X16, f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>")
        keys = (page * PAGE_TOKENS).cast("trunc", I32).splat(LANES) + lanes
        with f.loop("row", 0, self._tile_rows) as inside:
            row, place = first + inside, products.at(inside * LINE_BYTES)
            score = self._joined(place, 2 * TILE_BYTES).cast("sitofp", F32X16)
            score = score * (scales * splat_load(f, self._scale(row)))
            seen = keys.compare("slt", f.load(I32, self._keys_seen.at(row * 4), align=4).splat(LANES))
            target = self.part.scores.at(row * _SCORE_BYTES).at(page * LINE_BYTES)
            f.store(f.select(seen, score, -math.inf), target, align=64)

    def _copy_values(self) -> None:
        f, page_bytes = self.f, PAGE_TOKENS * self.dim
        with f.loop("page", 0, self._pages) as page:
            source, target = self.values(page), self._panel.at(page * page_bytes)
            with f.loop("line", 0, page_bytes, 4 * LINE_BYTES) as line:
                for place in range(0, 4 * LINE_BYTES, LINE_BYTES):
                    f.store(f.load(I32X16, source.at(line + place), align=4), target.at(line + place), align=64)

    def _add_dims(self, first: Value, dim: Value, together: int) -> None:
        """Of 16 or 32 dims."""
        f, row_bytes = self.f, self.dim * 4
        self._zero(together)
        with f.loop("key", 0, self._pages * PAGE_TOKENS, _KEYS) as key:
            for tile, plane, stride in zip(_X, self._weight_places(first), (_SCORE_BYTES, PART_TOKENS), strict=True):
                amx(f, "tileloadd64", tile, plane.at(key), stride)
            values = self._panel.at(key * self.dim).at(dim * 4)
            self._multiply([values.at(place * LINE_BYTES) for place in range(together)], row_bytes)
        sums = self._sums.at(first * row_bytes).at(dim * 4)
        places = [sums.at(place * LINE_BYTES) for place in range(together)]
        self._store_sums(places, self._room * row_bytes, row_bytes)

    def _joined(self, address: Value, plane_bytes: int) -> Value:
        """128 * hi + lo of 16 sums. address: of those of hi."""
        hi, lo = (self.f.load(I32X16, address.at(plane * plane_bytes), align=64) for plane in range(2))
        return (hi << 7) + lo

    def _store(self, x: Value, place: Value, places: Places) -> None:
        integers = self.f.unary("roundeven", x).cast("fptosi", I32X16)
        for plane, address in zip((self.f.shifted_right(integers, 7), integers & 127), places, strict=True):
            self.f.store(plane.cast("trunc", vector(I8, LANES)), address.at(place), align=16)

    def _q_places(self, row: Value) -> Places:
        hi = self._queries.at(row * self.dim)
        return hi, hi.at(self._room * self.dim)

    def _weight_places(self, row: Value) -> Places:
        return self.part.scores.at(row * _SCORE_BYTES), self._low_weights.at(row * PART_TOKENS)

    def _weighed_pages(self, query: Query) -> Value:
        return self._pages

    def _value_scales(self, page: Value) -> Value:
        return self.f.load(F32X16, self._scales_of_values.at(page * LINE_BYTES), align=64)

    def _clear(self, query: Query) -> None:
        """Tiles begin at zero."""

    def _total(self, row: Value, dim: Value, address: Value) -> Value:
        return self._joined(self._sums.at(row * (self.dim * 4)).at(dim * 4), self._room * self.dim * 4)
