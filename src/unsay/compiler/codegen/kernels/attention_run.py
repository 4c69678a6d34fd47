"""What the kernels of attention share: the shape of an ATTN, a run of query tokens, and where things are (N9).

A state is what a part of 256 keys leaves for a token and the G query heads of a KV head:
o f32 [G][D] | m f32 [G] | l f32 [G].
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from unsay.compiler.codegen.builder import I32, I64, Function, Value
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import argument, index_at
from unsay.core import PAGE_TOKENS
from unsay.isa.abi import StepArgs
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

PART_TOKENS = 256
PART_PAGES = PART_TOKENS // PAGE_TOKENS
_RUN_ROWS, _RUN_ROWS_ON_TILES = 24, 32
"""Query heads, of all tokens of a run, that go through a part together: their scores stay in the first cache."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Shape of an ATTN: q, k, v are columns of f32 rows of q_width, k_width, v_width; out [capacity, H*D].

    on_tiles: runs of many rows are multiplied on tile registers.
    """

    layout: KvLayout
    num_heads: int
    scale: float
    q_column: int
    k_column: int
    v_column: int
    q_width: int
    k_width: int
    v_width: int
    out_dtype: DType
    capacity: int
    on_tiles: bool = False

    @property
    def group(self) -> int:
        """G: query heads per KV head."""
        return self.num_heads // self.layout.num_kv_heads

    @property
    def run_tokens(self) -> int:
        """Most query tokens that go through a part together."""
        return max(1, (_RUN_ROWS_ON_TILES if self.on_tiles else _RUN_ROWS) // self.group)

    @property
    def state_bytes(self) -> int:
        """Bytes of a state."""
        return state_bytes(self.group, self.layout.head_dim)

    @property
    def name(self) -> str:
        """For function names."""
        columns = f"{self.q_column}of{self.q_width}_{self.k_column}of{self.k_width}_{self.v_column}of{self.v_width}"
        return f"{self.num_heads}h{self.layout.num_kv_heads}x{self.layout.head_dim}_{columns}"


def state_bytes(group: int, head_dim: int) -> int:
    """Bytes of the state of G heads, whole cache lines."""
    return -(-group * (head_dim + 2) * 4 // 64) * 64


@dataclass(frozen=True, slots=True)
class Query:
    """A token of a run, and how many keys of the part it sees, at least one. place: its number in the run."""

    token: Value
    place: Value
    keys: Value

    @property
    def pages(self) -> Value:
        """Pages of the part it sees."""
        return (self.keys + (PAGE_TOKENS - 1)) // PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Part:
    """A part and a run: the tokens of [first, end) that are of the sequence of the first.

    table: pages of the sequence; last: the position of its last token here; scores: scratch f32 [run][G][256].
    """

    f: Function
    unit: DotUnit
    shape: Attention
    table: Value
    last: Value
    scores: Value

    @property
    def pages(self) -> Value:
        """Pages of the part, as many as the last token sees."""
        keys = self.f.smaller(self.last + 1 - self.f["part"] * PART_TOKENS, PART_TOKENS)
        return (self.f.select(keys.compare("sgt", 0), keys, 0) + (PAGE_TOKENS - 1)) // PAGE_TOKENS

    @property
    def rows(self) -> Value:
        """Query heads of the tokens of the run that are of the sequence of the first; none is left out."""
        f = self.f
        tokens = self.last + 1 - index_at(f, argument(f, "positions"), f["first"])
        most = f.smaller(f["end"] - f["first"], self.shape.run_tokens)
        return f.larger(f.smaller(tokens, most), 1) * self.shape.group

    def page(self, number: Value) -> Value:
        """Address, in this layer, of a page of the part, or of the last one the run sees."""
        index = self.f.smaller(self.f["part"] * PART_PAGES + number, self.last // PAGE_TOKENS)
        return page_address(self.f, self.shape, self.table, index)

    def next_page(self, number: Value) -> Value:
        """Address of a page of the part that this thread computes next, if it is of the same sequence."""
        index = self.f.smaller(self.f["next_part"] * PART_PAGES + number, self.last // PAGE_TOKENS)
        return page_in(self.f["next_pool"], self.shape, self.table, index)

    @contextmanager
    def queries(self, key: Value | int = 0) -> Generator[Query]:
        """For each token that sees this key of the part."""
        f, first = self.f, self.f["first"]
        with f.loop("place", 0, f.smaller(f["end"] - first, self.shape.run_tokens)) as place:
            token = first + place
            keys = index_at(f, argument(f, "positions"), token) + 1 - f["part"] * PART_TOKENS
            with of_one_sequence(f, token, first), f.when(keys.compare("sgt", key)):
                yield Query(token, place, f.smaller(keys, PART_TOKENS))

    def row(self, query: Query, head: Value | int) -> Value:
        """Number of a head of a token among those of the run."""
        return query.place * self.shape.group + head

    def q(self, query: Query, head: Value | int) -> Value:
        """Address of a head of a query token."""
        row = self.f["q"].at(query.token * (self.shape.q_width * 4))
        return row.at(self.f.operand(I64, head) * (self.shape.layout.head_dim * 4))

    def score(self, query: Query, head: Value | int, key: Value | int = 0) -> Value:
        """Address of a score, which becomes a weight."""
        return self.scores.at(self.row(query, head) * (PART_TOKENS * 4)).at(self.f.operand(I64, key) * 4)

    def state(self, query: Query) -> Value:
        """Address of a token's state."""
        return self.f["states"].at(query.place * self.f["stride"])


@contextmanager
def of_one_sequence(f: Function, token: Value, other: Value) -> Generator[None]:
    """Only if both tokens are of one sequence."""
    with f.when(sequence_of(f, token).compare("eq", sequence_of(f, other))):
        yield


def last_position(f: Function, first: Value, end: Value) -> Value:
    """Of the tokens that are of the sequence of the first."""
    last = f.slot(I64, 0)
    with f.loop("token", first, end) as token:
        is_here = sequence_of(f, token).compare("eq", sequence_of(f, first))
        last.set(f.select(is_here, index_at(f, argument(f, "positions"), token), last.get()))
    return last.get()


def sequence_of(f: Function, token: Value) -> Value:
    """The number of its sequence."""
    return f.load(I32, argument(f, "sequence").at(token * 4), align=4)


def page_table(f: Function, token: Value) -> Value:
    """Address of the row of page_tables of the token's sequence."""
    stride = f.load(I32, f["args"].at(StepArgs.page_stride.offset), align=4).cast("sext", I64)
    return argument(f, "page_tables").at(index_at(f, argument(f, "sequence"), token) * stride * 4)


def page_address(f: Function, shape: Attention, table: Value, index: Value) -> Value:
    """Address, in this layer, of the page with this index in its sequence."""
    return page_in(f["pool"], shape, table, index)


def page_in(pool: Value, shape: Attention, table: Value, index: Value) -> Value:
    """The same, of what lies at an offset of the pool."""
    return pool.at(index_at(pool.function, table, index) * shape.layout.page_bytes)


def maximum_at(shape: Attention, state: Value, head: Value | int) -> Value:
    """Address of m of a head."""
    return state.at(shape.group * shape.layout.head_dim * 4).at(state.function.operand(I64, head) * 4)


def total_at(shape: Attention, state: Value, head: Value | int) -> Value:
    """Address of l of a head."""
    return maximum_at(shape, state, head).at(shape.group * 4)


def clean_name(name: str) -> str:
    """A name LLVM takes without quotes."""
    return name.replace("+", "").replace("-", "m")
