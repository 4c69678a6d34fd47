"""ATTN (N9): append keys and values, then attend, part by part of 256 tokens.

    append     every token's k and v to its page
    attend     a unit of work is one KV head (its group of G query heads share every load) and
               - many tokens:  a run of up to 8 tokens and all their parts, so that a part's keys and values are
                               read from cache by all of them; the parts merge as they come
               - few tokens:   one part of one token, so that threads share a long context; results to scratch
    merge      few tokens: the parts of a (token, KV head), in order

Which way is taken changes who computes what, never the order of one output's arithmetic.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from unsay.compiler.codegen.builder import (
    F16X16,
    F32,
    F32X16,
    I32,
    I64,
    Function,
    Module,
    Value,
)
from unsay.compiler.codegen.kernels.attention_part import (
    PART_TOKENS,
    Attention,
    clean_name,
    merge_function,
    page_address,
    part_function,
    total_at,
)
from unsay.compiler.codegen.kernels.attention_part import state_bytes as state_bytes
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    Output,
    argument,
    index_at,
    kernel_parameters,
    leave_if_interrupted,
    share,
)
from unsay.core import PAGE_TOKENS
from unsay.isa.abi import StepArgs

RUN_TOKENS = 8
"""Query tokens that go through a part together, in a step of at least MANY_TOKENS."""

MANY_TOKENS = 64
SPLIT_UNITS_PER_THREAD = 4
"""Parts are dealt out one by one while there are fewer (token, KV head) units than this per thread."""


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
            leave_if_interrupted(f)
            position = index_at(f, positions, token)
            page = page_address(f, shape, _page_table(f, token), position // PAGE_TOKENS)
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
            parts = _num_parts(f, first, num_tokens)
            with (
                f.loop("part", 0, parts) as part,
                f.loop("token", 0, num_tokens) as place,
                _reached(f, first + place, part) as position,
            ):
                leave_if_interrupted(f)
                state = states.at(place * shape.state_bytes)
                goal = f.select(part.compare("eq", 0), state, part_state)
                _attend_part(f, unit, shape, first + place, head, part, position, goal)
                with f.when(part.compare("ne", 0)):
                    f.run(merge_function(module, shape), state, part_state)
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
    return module.define(clean_name(name), kernel_parameters("out", "q", "pool", "scratch"), write, doc)


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
                f.run(merge_function(module, shape), state, state.at(part * shape.state_bytes))
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
    f.run(part_function(f.module, unit, shape), pool, _page_table(f, token), q, part, position, state)


def _finish(f: Function, shape: Attention, token: Value, head: Value, state: Value) -> None:
    """out[d] = O[d] * (1 / L) for the G heads of KV head `head`."""
    dim = shape.layout.head_dim
    out = Output(f["out"], shape.out_dtype, shape.capacity, shape.num_heads * dim)
    for place in range(shape.group):
        total = f.load(F32, total_at(shape, state, place), align=4)
        inverse = (f.constant(F32, 1.0) / total).splat(LANES)
        with f.loop("dim", 0, dim, out.step) as column:
            starts = [column + start for start in range(0, out.step, LANES)]
            values = [f.load(F32X16, state.at((start + place * dim) * 4), align=4) * inverse for start in starts]
            out.store(f, token, (head * shape.group + place) * dim + column, values)
