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
from typing import Literal

from unsay.compiler.codegen.builder import (
    F16X16,
    F32,
    F32X16,
    I8,
    I32,
    I32X16,
    I64,
    Function,
    Module,
    Value,
    vector,
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
    largest,
    leave_if_interrupted,
    maximum,
    share,
)
from unsay.core import PAGE_TOKENS
from unsay.isa.abi import StepArgs
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

RUN_TOKENS = 8
"""Query tokens that go through a part together, in a step of at least MANY_TOKENS."""

MANY_TOKENS = 64
SPLIT_UNITS_PER_THREAD = 4
"""Parts are dealt out one by one while there are fewer (token, KV head) units than this per thread."""


def scratch_states(max_threads: int, context_length: int) -> int:
    """Most states `attend` leaves in scratch."""
    return SPLIT_UNITS_PER_THREAD * max_threads * -(-context_length // PART_TOKENS)


def append(module: Module, shape: Attention) -> str:
    """Kernel (k, v f32 rows, pool): store every token's keys and values in its page, in the layout's format."""
    layout = shape.layout

    def write(f: Function) -> None:
        begin, end = share(f, f["count"])
        positions = argument(f, "positions")
        with f.loop("token", begin, end) as token:
            leave_if_interrupted(f)
            position = index_at(f, positions, token)
            page = page_address(f, shape, _page_table(f, token), position // PAGE_TOKENS)
            slot = position % PAGE_TOKENS
            k = f["k"].at(token * (shape.k_width * 4) + shape.k_column * 4)
            v = f["v"].at(token * (shape.v_width * 4) + shape.v_column * 4)
            with f.loop("head", 0, layout.num_kv_heads) as head:
                place, start = page.at(head * layout.head_bytes), head * (layout.head_dim * 4)
                _append_keys(f, layout, k.at(start), place, slot)
                _append_values(f, layout, v.at(start), place, slot)

    doc = f"k, v of every token, as {layout.dtype.name}, into pages {{ keys [D][16] | values [16][D] }}"
    return module.define(f"append_{shape.name}", kernel_parameters("k", "v", "pool"), write, doc)


def _append_keys(f: Function, layout: KvLayout, row: Value, head: Value, slot: Value) -> None:
    """A row f32 [D] to the column `slot` of [D][16]."""
    size = layout.element_bytes
    inverse = _store_scale(f, layout, row, head.at(slot * 4), "keys") if layout.is_scaled else None
    with f.loop("dim", 0, layout.head_dim, LANES) as dim:
        stored = _stored(f, layout, row, dim, inverse)
        for lane in range(LANES):
            f.store(stored.lane(lane), head.at((dim + lane) * (PAGE_TOKENS * size)).at(slot * size), align=size)


def _append_values(f: Function, layout: KvLayout, row: Value, head: Value, slot: Value) -> None:
    """A row f32 [D] to the row `slot` of [16][D]."""
    size = layout.element_bytes
    values = head.at(layout.value_offset(0, 0))
    inverse = _store_scale(f, layout, row, head.at(slot * 4), "values") if layout.is_scaled else None
    with f.loop("dim", 0, layout.head_dim, LANES) as dim:
        stored = _stored(f, layout, row, dim, inverse)
        f.store(stored, values.at((slot * layout.head_dim + dim) * size), align=size)


def _stored(f: Function, layout: KvLayout, row: Value, dim: Value, inverse: Value | None) -> Value:
    """16 elements of a row as they are kept."""
    x = f.load(F32X16, row.at(dim * 4), align=4)
    if inverse is not None:
        return f.unary("roundeven", x * inverse).cast("fptosi", I32X16).cast("trunc", vector(I8, LANES))
    return x if layout.dtype is DType.F32 else x.cast("fptrunc", F16X16)


def _store_scale(f: Function, layout: KvLayout, row: Value, head: Value, part: Literal["keys", "values"]) -> Value:
    """N9, int8: keep the scale of a row, and give its inverse in every lane."""
    peaks = f.slot(F32X16, 0.0)
    with f.loop("dim", 0, layout.head_dim, LANES) as dim:
        peaks.set(maximum(f, peaks.get(), f.unary("fabs", f.load(F32X16, row.at(dim * 4), align=4))))
    peak = largest(f, peaks.get())
    small, zero = peak.compare("olt", 2.0**-100), f.constant(F32, 0.0)
    offset = layout.scale_offset(0, 0) + (0 if part == "keys" else PAGE_TOKENS * 4)
    f.store(f.select(small, zero, peak / 127.0), head.at(offset), align=4)
    return f.select(small, zero, f.constant(F32, 127.0) / peak).splat(LANES)


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
