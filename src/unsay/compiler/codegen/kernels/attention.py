"""ATTN (N9): append keys and values, then attend, part by part of 256 tokens.

append     every token's k and v to its page
attend     a unit of work is one KV head (its group of G query heads share every load) and
           - many tokens:  a run of up to 8 tokens and all their parts, so that a part's keys and values are
                           read from cache by all of them; the parts merge as they come
           - few tokens:   one part of one token, so that threads share a long context; results to scratch
merge      few tokens: the parts of a (token, KV head), in order

A state is what a part leaves for G heads: o f32 [G][D] | m f32 [G] | l f32 [G].
Which way is taken changes who computes what, never the order of one output's arithmetic.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from unsay.compiler.codegen.builder import (
    F16X16,
    F32,
    F32X16,
    I32,
    I32X16,
    I64,
    PTR,
    Function,
    Module,
    Slot,
    Value,
)
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    Output,
    argument,
    exp,
    index_at,
    kernel_parameters,
    largest,
    leave_if_interrupted,
    maximum,
    share,
    tree_sum,
)
from unsay.core import PAGE_TOKENS
from unsay.isa.abi import KvLayout, StepArgs
from unsay.isa.formats import DType

PART_TOKENS = 256
RUN_TOKENS = 8
"""Query tokens that go through a part together, in a step of at least MANY_TOKENS."""

MANY_TOKENS = 64
SPLIT_UNITS_PER_THREAD = 4
"""Parts are dealt out one by one while there are fewer (token, KV head) units than this per thread."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Shape of an ATTN: q, k, v are columns of f32 rows of q_width, k_width, v_width; out [capacity, H*D]."""

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

    @property
    def group(self) -> int:
        """G: query heads per KV head."""
        return self.num_heads // self.layout.num_kv_heads

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


def scratch_states(max_threads: int, context_length: int) -> int:
    """Most states `attend` leaves in scratch."""
    return SPLIT_UNITS_PER_THREAD * max_threads * -(-context_length // PART_TOKENS)


def append(module: Module, shape: Attention) -> str:
    """Kernel (k, v f32 rows, pool): round to f16 and store every token's keys and values in its page."""
    layout = shape.layout

    def write(f: Function) -> None:
        heads = layout.num_kv_heads
        begin, end = share(f, f["count"])
        positions = argument(f, "positions")
        with f.loop("token", begin, end) as token:
            position = index_at(f, positions, token)
            page = _page(f, shape, _page_table(f, token), position // PAGE_TOKENS)
            slot = position % PAGE_TOKENS
            with f.loop("column", 0, heads * layout.head_dim, LANES) as column:
                head = page.at(column // layout.head_dim * layout.head_bytes)
                dim = column % layout.head_dim
                k = _row_half(f, f["k"], token, shape.k_width, shape.k_column, column)
                for lane in range(LANES):
                    f.store(k.lane(lane), head.at((dim + lane) * (PAGE_TOKENS * 2)).at(slot * 2), align=2)
                v = _row_half(f, f["v"], token, shape.v_width, shape.v_column, column)
                values = head.at(layout.value_offset(0, 0))
                f.store(v, values.at((slot * layout.head_dim + dim) * 2), align=2)

    doc = "k, v of every token, as f16, into pages { keys [D][16] | values [16][D] }"
    return module.define(f"append_{shape.name}", kernel_parameters("k", "v", "pool"), write, doc)


def attend(module: Module, unit: DotUnit, shape: Attention) -> str:
    """Kernel (out, q f32 rows, pool, scratch)."""
    heads = shape.layout.num_kv_heads

    def whole_runs(f: Function) -> None:
        states = f.buffer(RUN_TOKENS * shape.state_bytes)
        part_state = f.buffer(shape.state_bytes)
        run = f.select(f["count"].compare("slt", MANY_TOKENS), f.constant(I64, 1), RUN_TOKENS)
        units = (f["count"] + run - 1) // run * heads
        with f.loop("unit", f["thread"], units, f["threads"]) as index:
            head, first = index % heads, index // heads * run
            num_tokens = f.smaller(run, f["count"] - first)
            with f.loop("part", 0, _num_parts(f, first, num_tokens)) as part:
                leave_if_interrupted(f)
                with f.loop("token", 0, num_tokens) as place, _reached(f, first + place, part) as position:
                    state = states.at(place * shape.state_bytes)
                    goal = f.select(part.compare("eq", 0), state, part_state)
                    _attend_part(f, unit, shape, first + place, head, part, position, goal)
                    with f.when(part.compare("ne", 0)):
                        f.run(_merge(module, shape), state, part_state)
            with f.loop("token", 0, num_tokens) as place:
                _finish(f, shape, first + place, head, states.at(place * shape.state_bytes))

    def single_parts(f: Function) -> None:
        parts = _num_parts(f, f.constant(I64, 0), f["count"])
        with f.loop("unit", f["thread"], f["count"] * heads * parts, f["threads"]) as index:
            leave_if_interrupted(f)
            pair, part = index // parts, index % parts
            token = pair // heads
            with _reached(f, token, part) as position:
                goal = f["scratch"].at(index * shape.state_bytes)
                _attend_part(f, unit, shape, token, pair % heads, part, position, goal)

    def write(f: Function) -> None:
        split = _is_split(f, heads)
        with f.when(split):
            single_parts(f)
        f.return_if(split)
        whole_runs(f)

    doc = (
        f"{shape.num_heads} query heads over {heads} KV heads of {shape.layout.head_dim}, parts of {PART_TOKENS} tokens"
    )
    name = f"attend_{shape.name}_{shape.out_dtype.name.lower()}_t{shape.capacity}_{shape.scale.hex()[4:]}"
    return module.define(_clean(name), kernel_parameters("out", "q", "pool", "scratch"), write, doc)


def merge(module: Module, shape: Attention) -> str:
    """Kernel (out, scratch): where parts were dealt out one by one, put them together in order."""
    heads = shape.layout.num_kv_heads

    def write(f: Function) -> None:
        f.return_if(_is_split(f, heads) ^ 1)
        positions = argument(f, "positions")
        parts = _num_parts(f, f.constant(I64, 0), f["count"])
        with f.loop("unit", f["thread"], f["count"] * heads, f["threads"]) as index:
            token = index // heads
            state = f["scratch"].at(index * parts * shape.state_bytes)
            own_parts = index_at(f, positions, token) // PART_TOKENS + 1
            with f.loop("part", 1, own_parts) as part:
                f.run(_merge(module, shape), state, state.at(part * shape.state_bytes))
            _finish(f, shape, token, index % heads, state)

    name = f"merge_{shape.name}_{shape.out_dtype.name.lower()}_t{shape.capacity}"
    return module.define(name, kernel_parameters("out", "scratch"), write, "parts of few tokens, in order")


def _is_split(f: Function, heads: int) -> Value:
    """Whether parts are dealt out one by one; the same for every thread of the step."""
    few = (f["count"] * heads).compare("slt", f["threads"] * SPLIT_UNITS_PER_THREAD)
    return few & f["threads"].compare("ne", 1)


def _num_parts(f: Function, first: Value, num_tokens: Value) -> Value:
    """The most parts any of the tokens has."""
    positions = argument(f, "positions")
    most = f.slot(I64, 0)
    with f.loop("token", first, first + num_tokens) as token:
        parts = index_at(f, positions, token) // PART_TOKENS + 1
        most.set(f.select(parts.compare("sgt", most.get()), parts, most.get()))
    return most.get()


@contextmanager
def _reached(f: Function, token: Value, part: Value) -> Generator[Value]:
    """Only if the token's keys reach into this part; gives the token's position."""
    position = index_at(f, argument(f, "positions"), token)
    with f.when((part * PART_TOKENS).compare("sle", position)):
        yield position


def _page_table(f: Function, token: Value) -> Value:
    """Address of the row of page_tables of the token's sequence."""
    stride = f.load(I32, f["args"].at(StepArgs.page_stride.offset), align=4).cast("sext", I64)
    return argument(f, "page_tables").at(index_at(f, argument(f, "sequence"), token) * stride * 4)


def _page(f: Function, shape: Attention, table: Value, index: Value) -> Value:
    """Address, in this layer, of the page with this index in its sequence."""
    return f["pool"].at(index_at(f, table, index) * shape.layout.page_bytes)


def _row_half(f: Function, base: Value, token: Value, width: int, start: int, column: Value) -> Value:
    row = base.at(token * (width * 4) + start * 4)
    return f.load(F32X16, row.at(column * 4), align=4).cast("fptrunc", F16X16)


def _attend_part(
    f: Function,
    unit: DotUnit,
    shape: Attention,
    token: Value,
    head: Value,
    part: Value,
    position: Value,
    state: Value,
) -> None:
    """Call the function that makes the state of one part for the G query heads of `head`."""
    dim = shape.layout.head_dim
    pool = f["pool"].at(head * shape.layout.head_bytes)
    q = f["q"].at(token * (shape.q_width * 4) + shape.q_column * 4).at(head * (shape.group * dim * 4))
    f.run(_part_function(f.module, unit, shape), pool, _page_table(f, token), q, part, position, state)


def _part_function(module: Module, unit: DotUnit, shape: Attention) -> str:
    """void part(pool, page table, q f32 [G][D], part, position, state)."""
    dim = shape.layout.head_dim

    def write(f: Function) -> None:
        weights = f.buffer(shape.group * PART_TOKENS * 4)
        keys = f.smaller(f["position"] + 1 - f["part"] * PART_TOKENS, PART_TOKENS)
        pages = (keys + (PAGE_TOKENS - 1)) // PAGE_TOKENS
        at_once = 8 if unit.vector_bytes == 64 else 3
        for first in range(0, shape.group, at_once):
            heads = range(first, min(first + at_once, shape.group))
            _scores(f, shape, heads, keys, pages, weights)
            _values(f, shape, heads, keys, pages, weights)

    name = f"attend_part_{shape.group}x{dim}_p{shape.layout.page_bytes}_{shape.scale.hex()[4:]}"
    parameters = [(PTR, "pool"), (PTR, "table"), (PTR, "q"), (I64, "part"), (I64, "position"), (PTR, "state")]
    doc = f"state of {shape.group} heads of {dim} over the keys of one part, up to `position`"
    return module.define(_clean(name), parameters, write, doc)


def _scores(f: Function, shape: Attention, heads: range, keys: Value, pages: Value, weights: Value) -> None:
    """e[t] = exp(s[t] - m) to `weights` f32 [G][256], m and l to the state."""
    dim = shape.layout.head_dim
    lanes = Value(f, I32X16, f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>")
    minus_infinity = Value(f, F32X16, "splat (float 0xFFF0000000000000)")
    best = [f.slot(F32X16, minus_infinity) for _ in heads]
    with f.loop("page", 0, pages) as page:
        address = _page(f, shape, f["table"], f["part"] * (PART_TOKENS // PAGE_TOKENS) + page)
        sums = [(f.slot(F32X16, 0.0), f.slot(F32X16, 0.0)) for _ in heads]
        following = f.smaller(page + 1, pages - 1)
        next_address = _page(f, shape, f["table"], f["part"] * (PART_TOKENS // PAGE_TOKENS) + following)
        with f.loop("dim", 0, dim, 2) as column:
            line = column * (PAGE_TOKENS * 2)
            f.prefetch(next_address.at(line))
            f.prefetch(address.at(line + shape.layout.value_offset(0, 0)))
            for odd in (0, 1):
                k = f.load(F16X16, address.at((column + odd) * (PAGE_TOKENS * 2)), align=2).cast("fpext", F32X16)
                for place, head in enumerate(heads):
                    q = f.load(F32, f["q"].at((column + (head * dim + odd)) * 4), align=4).splat(LANES)
                    sums[place][odd].set(f.fma(k, q, sums[place][odd].get()))
        live = (lanes + (page * PAGE_TOKENS).cast("trunc", I32).splat(LANES)).compare(
            "slt", keys.cast("trunc", I32).splat(LANES)
        )
        for place, head in enumerate(heads):
            even, odd = sums[place]
            score = f.select(live, (even.get() + odd.get()) * shape.scale, minus_infinity)
            f.store(score, weights.at(page * (PAGE_TOKENS * 4) + head * PART_TOKENS * 4), align=64)
            best[place].set(maximum(f, best[place].get(), score))
    for place, head in enumerate(heads):
        _exponentials(f, shape, head, best[place], pages, weights)


def _exponentials(f: Function, shape: Attention, head: int, best: Slot, pages: Value, weights: Value) -> None:
    m = largest(f, best.get())
    total = f.slot(F32X16, 0.0)
    with f.loop("page", 0, pages) as page:
        place = weights.at(page * (PAGE_TOKENS * 4) + head * PART_TOKENS * 4)
        e = exp(f, f.load(F32X16, place, align=64) - m.splat(LANES))
        f.store(e, place, align=64)
        total.set(total.get() + e)
    f.store(m, _maximum_at(shape, f["state"], head), align=4)
    f.store(tree_sum(total.get()), _total_at(shape, f["state"], head), align=4)


def _values(f: Function, shape: Attention, heads: range, keys: Value, pages: Value, weights: Value) -> None:
    """o[d] = fma(e[t], v[t][d], o[d]) for t in order, from 0, in the state."""
    dim = shape.layout.head_dim
    outputs = [f["state"].at(head * dim * 4) for head in heads]
    for output in outputs:
        with f.loop("dim", 0, dim, LANES) as column:
            f.store(f.constant(F32X16, 0.0), output.at(column * 4), align=4)
    with f.loop("page", 0, pages) as page:
        address = _page(f, shape, f["table"], f["part"] * (PART_TOKENS // PAGE_TOKENS) + page)
        rows = f.smaller(keys - page * PAGE_TOKENS, PAGE_TOKENS)
        with f.loop("dim", 0, dim, 2 * LANES if dim % (2 * LANES) == 0 else LANES) as column:
            values = address.at(shape.layout.value_offset(0, 0)).at(column * 2)
            halves = range(2 if dim % (2 * LANES) == 0 else 1)
            places = [[output.at(column * 4).at(half * LANES * 4) for half in halves] for output in outputs]
            sums = [[f.slot(F32X16, f.load(F32X16, place, align=4)) for place in row] for row in places]
            with f.loop("row", 0, rows) as row:
                start = values.at(row * (dim * 2))
                v = [f.load(F16X16, start.at(half * LANES * 2), align=2).cast("fpext", F32X16) for half in halves]
                for place, head in enumerate(heads):
                    e = f.load(F32, weights.at((page * PAGE_TOKENS + row + head * PART_TOKENS) * 4), align=4)
                    for half, total in enumerate(sums[place]):
                        total.set(f.fma(e.splat(LANES), v[half], total.get()))
            for goals, totals in zip(places, sums, strict=True):
                for goal, total in zip(goals, totals, strict=True):
                    f.store(total.get(), goal, align=4)


def _merge(module: Module, shape: Attention) -> str:
    """void merge_states(state, next): the parts so far and the next one."""
    dim, group = shape.layout.head_dim, shape.group

    def write(f: Function) -> None:
        for head in range(group):
            where = [(_maximum_at(shape, f[name], head), _total_at(shape, f[name], head)) for name in ("state", "next")]
            (old_m, old_l), (new_m, new_l) = [[f.load(F32, address, align=4) for address in pair] for pair in where]
            top = maximum(f, old_m, new_m)
            a, b = exp(f, old_m - top), exp(f, new_m - top)
            f.store(f.fma(old_l, a, new_l * b), where[0][1], align=4)
            f.store(top, where[0][0], align=4)
            with f.loop("dim", 0, dim, LANES) as column:
                old, new = (f[name].at(column * 4 + head * dim * 4) for name in ("state", "next"))
                added = f.load(F32X16, new, align=4) * b.splat(LANES)
                f.store(f.fma(f.load(F32X16, old, align=4), a.splat(LANES), added), old, align=4)

    doc = f"state of {group} heads of {dim}: the parts so far and the next one"
    return module.define(f"merge_states_{group}x{dim}", [(PTR, "state"), (PTR, "next")], write, doc)


def _finish(f: Function, shape: Attention, token: Value, head: Value, state: Value) -> None:
    """out[d] = O[d] * (1 / L) for the G heads of KV head `head`."""
    dim = shape.layout.head_dim
    out = Output(f["out"], shape.out_dtype, shape.capacity, shape.num_heads * dim)
    for place in range(shape.group):
        total = f.load(F32, _total_at(shape, state, place), align=4)
        inverse = (f.constant(F32, 1.0) / total).splat(LANES)
        with f.loop("dim", 0, dim, out.step) as column:
            starts = [column + start for start in range(0, out.step, LANES)]
            values = [f.load(F32X16, state.at((start + place * dim) * 4), align=4) * inverse for start in starts]
            out.store(f, token, (head * shape.group + place) * dim + column, values)


def _maximum_at(shape: Attention, state: Value, head: int) -> Value:
    return state.at((shape.group * shape.layout.head_dim + head) * 4)


def _total_at(shape: Attention, state: Value, head: int) -> Value:
    return state.at((shape.group * (shape.layout.head_dim + 1) + head) * 4)


def _clean(name: str) -> str:
    """A name LLVM takes without quotes."""
    return name.replace("+", "").replace("-", "m")
