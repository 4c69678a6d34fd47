"""ATTN (N9): append keys and values, then attend, part by part of 256 tokens.

    append     every token's k and v to its page
    attend     a unit of work is one KV head (its group of G query heads share every load) and
               - many tokens:  a run of up to 8 tokens and all their parts, so that a part's keys and values are
                               read from cache by all of them; the parts merge as they come
               - few tokens:   one part of all of them, so that threads share a long context, and a context is read
                               from memory once and not for each run; results to scratch
               which a thread takes when it is done with the one before
    merge      few tokens: the parts of a (token, KV head), in order

Which way is taken changes who computes what, never the order of one output's arithmetic.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from unsay.compiler.codegen.builder import (
    F16X16,
    F32,
    F32X16,
    I8,
    I32X16,
    I64,
    Function,
    Module,
    Value,
    vector,
)
from unsay.compiler.codegen.kernels.attention_part import merge_function, part_function
from unsay.compiler.codegen.kernels.attention_run import (
    PART_TOKENS,
    Attention,
    clean_name,
    last_position,
    of_one_sequence,
    page_address,
    page_table,
    sequence_of,
    total_at,
)
from unsay.compiler.codegen.kernels.attention_run import state_bytes as state_bytes
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    Output,
    argument,
    dealt,
    index_at,
    kernel_parameters,
    largest,
    leave_if_interrupted,
    maximum,
    share_or_all,
)
from unsay.core import PAGE_TOKENS
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

FEW_TOKENS = 16
"""For so many tokens of a step or less, parts are dealt out one by one: a correction, guesses, a batch of answers."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A part of a KV head."""

    head: Value
    part: Value


def max_parts(context_length: int) -> int:
    """Parts of the longest context."""
    return -(-context_length // PART_TOKENS)


def scratch_states(num_kv_heads: int, context_length: int) -> int:
    """Most states `attend` leaves in scratch."""
    return FEW_TOKENS * num_kv_heads * max_parts(context_length)


def append(module: Module, shape: Attention) -> str:
    """Kernel (k, v f32 rows, pool): store every token's keys and values in its page, in the layout's format."""
    layout = shape.layout

    def write(f: Function) -> None:
        begin, end = share_or_all(f, f["count"])
        positions = argument(f, "positions")
        with f.loop("token", begin, end) as token:
            leave_if_interrupted(f)
            position = index_at(f, positions, token)
            page = page_address(f, shape, page_table(f, token), position // PAGE_TOKENS)
            slot = position % PAGE_TOKENS
            k = f["k"].at(token * (shape.k_width * 4) + shape.k_column * 4)
            v = f["v"].at(token * (shape.v_width * 4) + shape.v_column * 4)
            with f.loop("head", 0, layout.num_kv_heads) as head:
                place, start = page.at(head * layout.head_bytes), head * (layout.head_dim * 4)
                _append_keys(f, layout, k.at(start), place, slot)
                _append_values(f, layout, v.at(start), place, slot)

    doc = f"k, v of every token, as {layout.dtype.name}, into pages"
    return module.define(f"append_{shape.name}", kernel_parameters("k", "v", "pool"), write, doc)


def _append_keys(f: Function, layout: KvLayout, row: Value, head: Value, slot: Value) -> None:
    """A row f32 [D] to the column `slot` of [D/q][16][q]."""
    size, q = layout.element_bytes, layout.together
    inverse = _store_scale(f, layout, row, head.at(slot * 4), "keys") if layout.is_scaled else None
    column = head.at(slot * (q * size))
    with f.loop("dim", 0, layout.head_dim, LANES) as dim:
        stored = _stored(f, layout, row, dim, inverse)
        for lane in range(0, LANES, q):
            piece = stored.lane(lane) if q == 1 else stored.shuffle(range(lane, lane + q))
            f.store(piece, column.at((dim + lane) * (PAGE_TOKENS * size)), align=q * size)


def _append_values(f: Function, layout: KvLayout, row: Value, head: Value, slot: Value) -> None:
    """A row f32 [D] to the row `slot` of [16/q][D][q]."""
    size, q = layout.element_bytes, layout.together
    inverse = _store_scale(f, layout, row, head.at(slot * 4), "values") if layout.is_scaled else None
    place = slot // q * (q * layout.head_dim * size) + slot % q * size
    values = head.at(layout.value_offset(0, 0)).at(place)
    with f.loop("dim", 0, layout.head_dim, LANES) as dim:
        stored = _stored(f, layout, row, dim, inverse)
        if q == 1:
            f.store(stored, values.at(dim * size), align=size)
        else:
            for lane in range(LANES):
                f.store(stored.lane(lane), values.at((dim + lane) * (q * size)), align=size)


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


def attend(module: Module, dot: DotUnit, shape: Attention, max_parts: int) -> str:
    """Kernel (out, q f32 rows, pool, scratch). max_parts: of a context."""
    heads = shape.layout.num_kv_heads

    def write(f: Function) -> None:
        split = _is_split(f)
        with f.when(split):
            _single_parts(f, dot, shape, max_parts)
        f.return_if(split)
        _whole_runs(f, dot, shape)

    doc = (
        f"{shape.num_heads} query heads over {heads} KV heads of {shape.layout.head_dim}, parts of {PART_TOKENS} tokens"
    )
    name = f"attend_{shape.name}_{shape.out_dtype.name.lower()}_t{shape.capacity}_{shape.scale.hex()[4:]}"
    return module.define(clean_name(name), kernel_parameters("out", "q", "pool", "scratch"), write, doc)


def _whole_runs(f: Function, dot: DotUnit, shape: Attention) -> None:
    """A unit is a KV head and a run of tokens with all their parts, which merge as they come."""
    heads, most = shape.layout.num_kv_heads, shape.run_tokens
    states = f.buffer(most * shape.state_bytes)
    part_states = f.buffer(most * shape.state_bytes)
    num_runs = (f["count"] + f["threads"] * most - 1) // (f["threads"] * most) * f["threads"]
    length = f.smaller((f["count"] + num_runs - 1) // num_runs, most)
    with dealt(f, num_runs * heads) as unit:
        head, begin = unit % heads, unit // heads * length
        end = f.smaller(begin + length, f["count"])
        with _sequences(f, begin, end) as (first, parts):
            with f.loop("part", 0, parts) as part:
                leave_if_interrupted(f)
                is_first = part.compare("eq", 0)
                goal = f.select(is_first, states, part_states)
                here, following = _Unit(head, part), _Unit(head, part + 1)
                _attend_part(f, dot, shape, here, (first, end), goal, shape.state_bytes, following)
                with f.when(is_first ^ 1), f.loop("token", first, end) as token, _reached(f, token, first, part):
                    place = (token - first) * shape.state_bytes
                    f.run(merge_function(f.module, shape), states.at(place), part_states.at(place))
            with f.loop("token", first, end) as token, of_one_sequence(f, token, first):
                _finish(f, shape, token, head, states.at((token - first) * shape.state_bytes))


def _single_parts(f: Function, dot: DotUnit, shape: Attention, max_parts: int) -> None:
    """A unit is a part of a KV head, for all tokens that have it."""
    heads, most = shape.layout.num_kv_heads, shape.run_tokens
    end, most_parts = f["count"], _most_parts(f)
    num_units = most_parts * heads
    with dealt(f, num_units) as number:
        later = number + f["threads"]
        later = f.select(later.compare("slt", num_units), later, number)
        unit, following = (_Unit(each // most_parts, each % most_parts) for each in (number, later))
        here = _sequences(f, f.constant(I64, 0), end)
        with (
            here as (first, parts),
            f.when(unit.part.compare("slt", parts)),
            f.loop("run", first, end, most) as run,
        ):
            leave_if_interrupted(f)
            with of_one_sequence(f, run, first):
                place = (run * heads + unit.head) * max_parts + unit.part
                tokens, goal = (run, f.smaller(run + most, end)), f["scratch"].at(place * shape.state_bytes)
                _attend_part(f, dot, shape, unit, tokens, goal, heads * max_parts * shape.state_bytes, following)


def _attend_part(
    f: Function,
    dot: DotUnit,
    shape: Attention,
    unit: _Unit,
    run: tuple[Value, Value],
    states: Value,
    stride: int,
    following: _Unit,
) -> None:
    """For the tokens of a run; their states are `stride` bytes apart. following: what this thread does next, likely."""
    pools = [f["pool"].at(each.head * shape.layout.head_bytes) for each in (unit, following)]
    q = f["q"].at(unit.head * (shape.group * shape.layout.head_dim * 4) + shape.q_column * 4)
    numbers = f.constant(I64, stride), unit.part, *run, following.part
    f.run(part_function(f.module, dot, shape), f["args"], pools[0], q, states, pools[1], *numbers)


def merge(module: Module, shape: Attention, max_parts: int) -> str:
    """Kernel (out, scratch): where parts were dealt out one by one, put them together in order.

    Not where they lie: other threads may do the same with them.
    """
    heads = shape.layout.num_kv_heads

    def write(f: Function) -> None:
        f.return_if(_is_split(f) ^ 1)
        positions = argument(f, "positions")
        begin, end = share_or_all(f, f["count"] * heads)
        state = f.buffer(shape.state_bytes)
        with f.loop("unit", begin, end) as index:
            token = index // heads
            states = f["scratch"].at(index * (max_parts * shape.state_bytes))
            with f.loop("place", 0, shape.state_bytes, LANES * 4) as place:
                f.store(f.load(F32X16, states.at(place), align=4), state.at(place), align=4)
            with f.loop("part", 1, index_at(f, positions, token) // PART_TOKENS + 1) as part:
                f.run(merge_function(module, shape), state, states.at(part * shape.state_bytes))
            _finish(f, shape, token, index % heads, state)

    name = f"merge_{shape.name}_{shape.out_dtype.name.lower()}_t{shape.capacity}"
    return module.define(name, kernel_parameters("out", "scratch"), write, "parts of few tokens, in order")


def _is_split(f: Function) -> Value:
    """Whether parts are dealt out one by one; the same for every thread of the step."""
    return f["count"].compare("sle", FEW_TOKENS) & f["threads"].compare("ne", 1)


def _most_parts(f: Function) -> Value:
    """Of the tokens of the step, the most parts that one has."""
    last = f.slot(I64, 0)
    with f.loop("token", 0, f["count"]) as token:
        position = index_at(f, argument(f, "positions"), token)
        last.set(f.larger(last.get(), position))
    return last.get() // PART_TOKENS + 1


@contextmanager
def _sequences(f: Function, begin: Value, end: Value) -> Generator[tuple[Value, Value]]:
    """For each sequence of these tokens: its first of them, and the number of parts of the last."""
    with f.loop("first", begin, end) as first:
        parts = last_position(f, first, end) // PART_TOKENS + 1
        before = f.select(first.compare("eq", begin), first, first - 1)
        is_new = sequence_of(f, first).compare("ne", sequence_of(f, before)) | first.compare("eq", begin)
        with f.when(is_new):
            yield first, parts


@contextmanager
def _reached(f: Function, token: Value, first: Value, part: Value) -> Generator[None]:
    """Only if the token is of the same sequence as another, and its keys reach into this part."""
    with of_one_sequence(f, token, first):
        position = index_at(f, argument(f, "positions"), token)
        with f.when((part * PART_TOKENS).compare("sle", position)):
            yield


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
