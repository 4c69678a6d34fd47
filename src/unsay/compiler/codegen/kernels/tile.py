"""Tiles of a matrix product (N4, N5): 16 rows of W x for a few tokens, in the one order there is.

    weights [K/32]{ 16 rows x 32 columns }        a row group, as isa/formats.py packs it
    second  the same                              another row group, far away, in a tile of a token that is alone
    even    where the weights are whose even lines (64 B) are fetched ahead, odd: those whose odd lines are
    x       [capacity][K]                         the tile is of the rows token .. token + tokens - 1
    notes   words i16 [K/32][tokens][32]          where the unit multiplies words: 128 * hi + lo, in WORD_ORDER
            lifts f32 [K/32][tokens]              of Q4_1: scale_b * f32(sum_b)
            flags i32 [K/32]                      of Q8W, without words: not zero where a block of the tile is wide
    sums    f32 [groups][tokens][16]

Notes depend on the tokens alone, so they are taken once for all row groups that the tile is of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F16, F32, F32X16, I8, I16, I32, I64, PTR, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.dot import WORD_ORDER, DotUnit, block_dot
from unsay.compiler.codegen.kernels.vector import LANES, Quantised, load_floats, splat_load
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_WEIGHTS, ROW_GROUP, DType, group_block_bytes, weight_bytes

_NIBBLE_BYTES, _BYTE_BYTES, _SCALE_BYTES = 256, 512, 32

_SUMS_TOGETHER, _PIECES_TOGETHER = 8, 4
"""Registers of sums and of rows that are made side by side, at most."""

_PAIR_AHEAD_BYTES = 640
"""How far before their use weights are asked for where two row groups stream: nearer than one alone would want it."""


@dataclass(frozen=True, slots=True)
class Product:
    """W x for one weight format and shape: W [num_rows, width], x [capacity, width] (Q8A or Q8W for a quantised W, else
    F32; Q16 or Q16P for any). num_fine: the last rows, which the fast class takes twice (N15)."""

    dtype: DType
    num_rows: int
    width: int
    x_dtype: DType
    capacity: int
    num_fine: int = 0

    @property
    def num_groups(self) -> int:
        """Row groups of W."""
        return -(-self.num_rows // ROW_GROUP)

    @property
    def num_blocks(self) -> int:
        """Blocks of 32 along K, of a quantised W."""
        return self.width // QUANT_BLOCK

    @property
    def group_bytes(self) -> int:
        """Bytes of one row group."""
        return weight_bytes(self.dtype, ROW_GROUP, self.width)

    @property
    def name(self) -> str:
        """For function names: q4_1_1536x576_q8w_t512."""
        return f"{self.dtype.name.lower()}_{self.num_rows}x{self.width}_{self.x_dtype.name.lower()}_t{self.capacity}"


@dataclass(frozen=True, slots=True)
class Notes:
    """What is noted of `tokens` rows of a product's x, and where."""

    unit: DotUnit
    product: Product
    tokens: int

    @property
    def has_words(self) -> bool:
        """Whether activations are multiplied as 16 bits."""
        return self.unit.takes_words(self.product.dtype)

    @property
    def has_lifts(self) -> bool:
        """Whether the weights have an offset."""
        return self.product.dtype is DType.Q4_1

    @property
    def has_flags(self) -> bool:
        """Whether wide blocks are told from others."""
        return self.product.x_dtype is DType.Q8W and not self.has_words

    @property
    def num_bytes(self) -> int:
        """Room for them."""
        return self._words_bytes + (self.tokens + 1) * self.product.num_blocks * 4

    def words(self, notes: Value, block: Value, place: int) -> Value:
        """Address of the words of a block of the token at `place` of the tile."""
        return notes.at((block * self.tokens + place) * (2 * QUANT_BLOCK))

    def lift(self, notes: Value, block: Value, place: int) -> Value:
        """Address of the lift of a block of the token at `place` of the tile."""
        return notes.at(self._words_bytes).at((block * self.tokens + place) * 4)

    def flag(self, notes: Value, block: Value) -> Value:
        """Address of the flag of a block."""
        return notes.at(self._words_bytes + self.tokens * self.product.num_blocks * 4).at(block * 4)

    @property
    def _words_bytes(self) -> int:
        return self.tokens * 2 * self.product.width if self.has_words else 0


def notes_function(module: Module, unit: DotUnit, product: Product, tokens: int) -> str:
    """void notes(x, first token, notes)."""
    notes = Notes(unit, product, tokens)

    def write(f: Function) -> None:
        x = Quantised(f["x"], product.capacity, product.width)
        rows = [f["token"] + place for place in range(tokens)]
        with f.loop("block", 0, product.num_blocks) as block:
            for place, row in enumerate(rows):
                if notes.has_words:
                    _note_words(f, product, x, row, block, notes.words(f["notes"], block, place))
                if notes.has_lifts:
                    whole = f.load(I32, x.sum(row).at(block * 4), align=4).cast("sitofp", F32)
                    lift = f.load(F32, x.scale(row).at(block * 4), align=4) * whole
                    f.store(lift, notes.lift(f["notes"], block, place), align=4)
            if notes.has_flags:
                any_wide = f.constant(I32, 0)
                for row in rows:
                    any_wide = any_wide | f.load(I32, x.wide(row).at(block * 4), align=4)
                f.store(any_wide, notes.flag(f["notes"], block), align=4)

    name = f"notes_{_tile_name(product, tokens)}"
    doc = f"notes of {tokens} tokens of {product.x_dtype.name} from `token` on, for {product.dtype.name} weights"
    return module.define(name, [(PTR, "x"), (I64, "token"), (PTR, "notes")], write, doc)


def _note_words(f: Function, product: Product, x: Quantised, row: Value, block: Value, words: Value) -> None:
    """The 32 values of a block as 16 bits, stored two at a time, which is how they are loaded again.

    LLVM takes four times as long over pairs that do not lie side by side before.
    """
    bytes_, half = vector(I8, 16), vector(I16, 16)
    for start in (0, 16):
        at = block * QUANT_BLOCK + start
        whole = f.load(bytes_, x.lo(row).at(at), align=16).cast("sext", half)
        if product.x_dtype is DType.Q8W:
            whole = whole + (f.load(bytes_, x.hi(row).at(at), align=16).cast("sext", half) << 7)
        ordered = whole.shuffle([column - start for column in WORD_ORDER[start : start + 16]])
        for place in range(0, 16, 2):
            f.store(ordered.shuffle([place, place + 1]), words.at((start + place) * 2), align=4)


def tile_function(module: Module, unit: DotUnit, product: Product, tokens: int) -> str:
    """void tile(weights of a row group, even, odd, x, first token, notes, sums); of floats no notes, nothing ahead."""

    def write(f: Function) -> None:
        if product.dtype in QUANTISED_WEIGHTS:
            _write_quantised_tile(f, unit, product, tokens, [_Group(f["weights"], f["even"], f["odd"])])
        else:
            _write_float_tile(f, product, tokens)

    pointers = [(PTR, "weights"), (PTR, "even"), (PTR, "odd"), (PTR, "x")]
    parameters = [*pointers, (I64, "token"), (PTR, "notes"), (PTR, "sums")]
    return module.define(
        f"tile_{_tile_name(product, tokens)}",
        parameters,
        write,
        f"sums f32 [{tokens}][16] of a row group {product.dtype.name} [16, {product.width}] and {tokens} tokens of "
        f"{product.x_dtype.name} from `token` on",
    )


def pair_function(module: Module, unit: DotUnit, product: Product) -> str:
    """void pair(weights, second, x, token, notes, sums): a tile of one token and two row groups, for a quantised W."""
    parameters = [(PTR, "weights"), (PTR, "second"), (PTR, "x"), (I64, "token"), (PTR, "notes"), (PTR, "sums")]
    return module.define(
        f"pair_{_tile_name(product, 1)}",
        parameters,
        lambda f: _write_quantised_tile(f, unit, product, 1, [_streaming(f["weights"]), _streaming(f["second"])]),
        f"sums f32 [2][16] of two row groups {product.dtype.name} [16, {product.width}] and a token of "
        f"{product.x_dtype.name}",
    )


def _tile_name(product: Product, tokens: int) -> str:
    """q4_1_k576_q8w_t512_x4"""
    formats = f"{product.dtype.name.lower()}_k{product.width}_{product.x_dtype.name.lower()}"
    return f"{formats}_t{product.capacity}_x{tokens}"


@dataclass(frozen=True, slots=True)
class _Group:
    """Where a row group is, and what its even and its odd lines are fetched ahead of."""

    weights: Value
    even: Value
    odd: Value


def _streaming(weights: Value) -> _Group:
    """One of two whose weights are asked for shortly before their use."""
    ahead = weights.at(_PAIR_AHEAD_BYTES)
    return _Group(weights, ahead, ahead)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Of a tile's row group number `group` the rows from `row` on, as many as a register has sums of."""

    group: int
    row: int


def _write_quantised_tile(f: Function, unit: DotUnit, product: Product, tokens: int, groups: Sequence[_Group]) -> None:
    """N4, for as many rows at once as there are registers for their sums."""
    x = Quantised(f["x"], product.capacity, product.width)
    tile = _Tile(Notes(unit, product, tokens), x, [f["token"] + place for place in range(tokens)], groups)
    pieces = [_Piece(group, row) for group in range(len(groups)) for row in range(0, ROW_GROUP, unit.lanes)]
    together = max(1, min(_PIECES_TOGETHER, _SUMS_TOGETHER // tokens))
    for start in range(0, len(pieces), together):
        _write_pieces(f, unit, tile, pieces[start : start + together])


@dataclass(frozen=True, slots=True)
class _Tile:
    """The tokens `rows` of x, what is noted of them, and the row groups they are multiplied with."""

    notes: Notes
    x: Quantised
    rows: list[Value]
    groups: Sequence[_Group]

    def activations(self, f: Function, block: Value) -> list[Value]:
        """Addresses of a block of each token, as it is multiplied: words, or the low plane."""
        if self.notes.has_words:
            return [self.notes.words(f["notes"], block, place) for place in range(len(self.rows))]
        return [self.x.lo(row).at(block * QUANT_BLOCK) for row in self.rows]


def _write_pieces(f: Function, unit: DotUnit, tile: _Tile, pieces: Sequence[_Piece]) -> None:
    """The sums of all pieces."""
    product, rows = tile.notes.product, tile.rows
    sums = {(piece, place): f.slot(vector(F32, unit.lanes), 0.0) for piece in pieces for place in range(len(rows))}
    with f.loop("block", 0, product.num_blocks) as block:
        offset = block * group_block_bytes(product.dtype)
        weights = {piece: tile.groups[piece.group].weights.at(offset) for piece in pieces}
        for piece in pieces:
            if piece.row == 0:
                _fetch_ahead(f, product, tile.groups[piece.group], offset)
        starts = [address.at(piece.row * 4) for piece, address in weights.items()]
        high = _high_dots(f, unit, tile, block, starts)
        dots = block_dot(f, unit, product.dtype, starts, tile.activations(f, block), high)
        for place in range(len(rows)):
            add = _scaler(f, unit, tile, block, place)
            for piece, dot in zip(pieces, dots[place :: len(rows)], strict=True):
                total = sums[piece, place]
                total.set(add(total.get(), dot, weights[piece].at(piece.row * 2)))
    for (piece, place), total in sums.items():
        at = (piece.group * len(rows) + place) * LANES + piece.row
        f.store(total.get(), f["sums"].at(at * 4), align=min(unit.vector_bytes, 32))


def _fetch_ahead(f: Function, product: Product, group: _Group, offset: Value) -> None:
    """Ask for a block's lines of what comes later."""
    for line in range(0, group_block_bytes(product.dtype), 64):
        f.prefetch((group.odd if line % 128 else group.even).at(offset).at(line))


def _scaler(
    f: Function, unit: DotUnit, tile: _Tile, block: Value, place: int
) -> Callable[[Value, Value, Value], Value]:
    """N4 for one token once the dots of a block are there: (sums before, dots, where the block's row scales would begin
    if nothing came before them) to the sums after."""
    product, lanes, row = tile.notes.product, unit.lanes, tile.rows[place]
    floats, halves = vector(F32, lanes), vector(F16, lanes)
    scales_at = _BYTE_BYTES if product.dtype is DType.Q8_0 else _NIBBLE_BYTES
    offset = unit.offset(product.dtype)
    scale = f.load(F32, tile.x.scale(row).at(block * 4), align=4).splat(lanes)
    lift = (
        f.load(F32, tile.notes.lift(f["notes"], block, place), align=4).splat(lanes) if tile.notes.has_lifts else None
    )
    excess = (f.load(I32, tile.x.sum(row).at(block * 4), align=4) * offset).splat(lanes) if offset else None

    def add(total: Value, dot: Value, rows: Value) -> Value:
        dot = dot if excess is None else dot - excess
        d = f.load(halves, rows.at(scales_at), align=2).cast("fpext", floats)
        total = f.fma(dot.cast("sitofp", floats), d * scale, total)
        if lift is None:
            return total
        m = f.load(halves, rows.at(scales_at + _SCALE_BYTES), align=2).cast("fpext", floats)
        return f.fma(m, lift, total)

    return add


def _high_dots(f: Function, unit: DotUnit, tile: _Tile, block: Value, pieces: list[Value]) -> list[Value] | None:
    """128 times the dots with the high plane; where no token of the tile is wide, nothing is loaded. None where no
    such plane is multiplied, or words have it.

    Each wide token takes the weights again from L1: mostly it is the only one of its tile.
    """
    if not tile.notes.has_flags:
        return None
    rows = tile.rows
    slots = [f.slot(vector(I32, unit.lanes), 0) for _ in pieces for _ in rows]
    with f.when(f.load(I32, tile.notes.flag(f["notes"], block), align=4).compare("ne", 0)):
        for place, row in enumerate(rows):
            with f.when(f.load(I32, tile.x.wide(row).at(block * 4), align=4).compare("ne", 0)):
                high = tile.x.hi(row).at(block * QUANT_BLOCK)
                dots = block_dot(f, unit, tile.notes.product.dtype, pieces, [high])
                for slot, dot in zip(slots[place :: len(rows)], dots, strict=True):
                    slot.set(dot << 7)
    return [slot.get() for slot in slots]


def _write_float_tile(f: Function, product: Product, tokens: int) -> None:
    """N5."""
    element_bytes = product.group_bytes // (ROW_GROUP * product.width)
    rows = [f["x"].at((f["token"] + place) * (product.width * 4)) for place in range(tokens)]
    sums = [f.slot(F32X16, 0.0) for _ in rows]
    with f.loop("k", 0, product.width) as k:
        w = load_floats(f, product.dtype, f["weights"].at(k * (ROW_GROUP * element_bytes)))
        for row, total in zip(rows, sums, strict=True):
            total.set(f.fma(w, splat_load(f, row.at(k * 4)), total.get()))
    for place, total in enumerate(sums):
        f.store(total.get(), f["sums"].at(place * LANES * 4), align=64)
