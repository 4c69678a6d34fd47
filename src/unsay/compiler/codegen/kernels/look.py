"""What a step notes of each row of logits that is sampled from, while they are near: N12 and N13 on all threads.

    look_largest   of each part: the largest score, and the first token that has it
    look_weights   of each part: the sum of its weights; where the row is drawn from, the token that leads the race
    look_rows      the same of whole rows

A barrier follows each. Every thread takes its share of the parts of every row; a part's numbers are the same whoever
computes them, and those of a row are made of them in order.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from unsay.compiler.codegen.builder import F32, F32X16, F64, I32, I32X16, I64, Function, Module, Value
from unsay.compiler.codegen.kernels.scan import largest_or_nan, maximum_or_nan, noise_words, score_bound
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    exp,
    kernel_parameters,
    largest,
    leave_if_interrupted,
    maximum,
    share,
    tree_sum,
)
from unsay.isa.scan import PART_TOKENS, SCAN_TOKENS, PartSeen, RowDraw, RowSeen, num_parts, seen_bytes

_LAST_TOKEN = 2**31 - 1
_TYPES = {
    "inverse": F32, "key0": I32, "key1": I32, "position": I32,
    "largest": F32, "likeliest": I32, "weight": F32, "bound": F32, "next_bound": F32, "leader": I32, "word": I32,
}  # fmt: skip
"""Of the fields of RowDraw and PartSeen."""


def look(module: Module, num_tokens: int, stride: int) -> list[str]:
    """The kernels (logits f32 [R][stride], draws RowDraw [R], seen [R][seen_bytes]), in order."""
    kernels = (
        ("largest", _look_largest, "N12: the largest score of each part"),
        ("weights", _look_weights, "N12, N13: what each part weighs, and who leads its race"),
        ("rows", _look_rows, "N12, N13: the same of whole rows"),
    )
    return [
        module.define(
            f"look_{name}_{num_tokens}",
            kernel_parameters("logits", "draws", "seen"),
            _writer(write, num_tokens, stride),
            doc,
        )
        for name, write, doc in kernels
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of logits and what is noted of it."""

    f: Function
    num_tokens: int
    logits: Value
    draw: Value
    seen: Value

    @property
    def num_parts(self) -> int:
        """The last may be short."""
        return num_parts(self.num_tokens)

    def scores(self, part: Value, at: Value | int, size: int) -> Value:
        """<16 x float> from place `at` of a part of `size` tokens on; -inf behind its end."""
        f = self.f
        at = f.operand(I64, at)
        found = f.load(F32X16, self.logits.at(part * (PART_TOKENS * 4)).at(at * 4), align=4)
        if size % LANES == 0:
            return found
        inside = self.places(at).compare("slt", size)
        return f.select(inside, found, f.constant(F32X16, float("-inf")))

    def places(self, at: Value) -> Value:
        """<16 x i32> at, at + 1 ..."""
        lanes = ", ".join(f"i32 {lane}" for lane in range(LANES))
        return at.cast("trunc", I32).splat(LANES) + Value(self.f, I32X16, f"<{lanes}>")

    def of_part(self, part: Value, name: str) -> Value:
        """A field of what is noted of a part."""
        return self.f.load(_TYPES[name], _field(PartSeen, name, self._part(part)), align=4)

    def note_part(self, part: Value, **values: Value) -> None:
        """Note fields of a part."""
        for name, value in values.items():
            self.f.store(value, _field(PartSeen, name, self._part(part)), align=4)

    def note(self, **values: Value) -> None:
        """Note fields of the row."""
        for name, value in values.items():
            self.f.store(value, _field(RowSeen, name, self.seen), align=4)

    def asked(self, name: str) -> Value:
        """A field of what is to be drawn."""
        return self.f.load(_TYPES[name], _field(RowDraw, name, self.draw), align=4)

    def largest(self) -> Value:
        """The largest of the parts' largest."""
        top = self.f.slot(F32, float("-inf"))
        with self.f.loop("part", 0, self.num_parts) as part:
            noted = self.of_part(part, "largest")
            top.set(self.f.intrinsic("llvm.maximum.f32", F32, top.get(), noted))
        return top.get()

    def _part(self, part: Value) -> Value:
        return self.seen.at(part * ctypes.sizeof(PartSeen) + ctypes.sizeof(RowSeen))


def _writer(
    write: Callable[[Function, Callable[[Value], _Row]], None], num_tokens: int, stride: int
) -> Callable[[Function], None]:
    def body(f: Function) -> None:
        write(
            f,
            lambda row: _Row(
                f, num_tokens, f["logits"].at(row * (stride * 4)),
                f["draws"].at(row * ctypes.sizeof(RowDraw)), f["seen"].at(row * seen_bytes(num_tokens)),
            ),
        )  # fmt: skip

    return body


def _look_largest(f: Function, row_at: Callable[[Value], _Row]) -> None:
    with f.loop("row", 0, f["count"]) as index:
        leave_if_interrupted(f)
        row = row_at(index)

        def write(part: Value, size: int) -> None:
            top = f.slot(F32X16, float("-inf"))
            with f.loop("score", 0, size, LANES) as at:
                top.set(maximum_or_nan(f, top.get(), row.scores(part, at, size)))
            highest = largest_or_nan(f, top.get())
            first = f.slot(I32X16, _LAST_TOKEN)
            with f.loop("first", 0, size, LANES) as at:
                equal = row.scores(part, at, size).compare("oeq", highest.splat(LANES))
                place = f.select(equal, row.places(at), _no_place(f))
                first.set(_smaller(f, first.get(), place))
            likeliest = _least(f, first.get()) + _first_token(part)
            row.note_part(part, largest=highest, likeliest=likeliest)

        _each_part(f, row.num_tokens, write)


def _look_weights(f: Function, row_at: Callable[[Value], _Row]) -> None:
    with f.loop("row", 0, f["count"]) as index:
        leave_if_interrupted(f)
        row = row_at(index)
        highest = row.largest().splat(LANES)
        inverse = row.asked("inverse")

        def write(part: Value, size: int) -> None:
            total = f.slot(F32X16, 0.0)
            with f.loop("weight", 0, size, LANES) as at:
                total.set(total.get() + exp(f, row.scores(part, at, size) - highest))
            row.note_part(part, weight=tree_sum(total.get()))
            with f.when(inverse.compare("ogt", 0.0)):
                _race(f, row, part, size, highest, inverse.splat(LANES))

        _each_part(f, row.num_tokens, write)


def _race(f: Function, row: _Row, part: Value, size: int, highest: Value, inverse: Value) -> None:
    """Note the token of a part with the largest bound (of equals the lowest), and the largest bound of the others."""
    bound, next_bound = f.slot(F32X16, -1.0), f.slot(F32X16, 0.0)
    token, word = f.slot(I32X16, 0), f.slot(I32X16, 0)
    keys, position = (row.asked("key0"), row.asked("key1")), row.asked("position")

    def meet(at: Value, num_vectors: int) -> None:
        for place, words in enumerate(noise_words(f, part * PART_TOKENS + at, keys, position)[:num_vectors]):
            start = at + place * LANES
            new, before = score_bound(f, (row.scores(part, start, size) - highest) * inverse, words), bound.get()
            ahead = new.compare("ogt", before)
            next_bound.set(maximum(f, next_bound.get(), f.select(ahead, before, new)))
            bound.set(f.select(ahead, new, before))
            token.set(f.select(ahead, row.places(start), token.get()))
            word.set(f.select(ahead, words, word.get()))

    whole = (size + LANES - 1) // SCAN_TOKENS * SCAN_TOKENS
    with f.loop("race", 0, whole, SCAN_TOKENS) as at:
        meet(at, SCAN_TOKENS // LANES)
    if whole < size:
        meet(f.constant(I64, whole), 1)
    top = largest(f, bound.get())
    leader = _least(f, f.select(bound.get().compare("oeq", top.splat(LANES)), token.get(), _no_place(f)))
    leads = token.get().compare("eq", leader.splat(LANES))
    others = largest(f, f.select(leads, f.constant(F32X16, 0.0), bound.get()))
    row.note_part(
        part, bound=top, next_bound=_larger(f, others, largest(f, next_bound.get())),
        leader=leader + _first_token(part), word=_least(f, f.select(leads, word.get(), f.constant(I32X16, -1))),
    )  # fmt: skip


def _look_rows(f: Function, row_at: Callable[[Value], _Row]) -> None:
    begin, end = share(f, f["count"])
    with f.loop("row", begin, end) as index:
        row = row_at(index)
        highest = row.largest()
        total, likeliest = f.slot(F64, 0.0), f.slot(I32, -1)
        bound, next_bound, leader, word = f.slot(F32, -1.0), f.slot(F32, 0.0), f.slot(I32, 0), f.slot(I32, 0)
        with f.loop("part", 0, row.num_parts) as part:
            total.set(total.get() + row.of_part(part, "weight").cast("fpext", F64))
            is_first = row.of_part(part, "largest").compare("oeq", highest) & likeliest.get().compare("slt", 0)
            likeliest.set(f.select(is_first, row.of_part(part, "likeliest"), likeliest.get()))
            new, before = row.of_part(part, "bound"), bound.get()
            ahead = new.compare("ogt", before)
            others = _larger(f, row.of_part(part, "next_bound"), f.select(ahead, before, new))
            next_bound.set(_larger(f, next_bound.get(), others))
            bound.set(f.select(ahead, new, before))
            leader.set(f.select(ahead, row.of_part(part, "leader"), leader.get()))
            word.set(f.select(ahead, row.of_part(part, "word"), word.get()))
        row.note(
            largest=highest, likeliest=likeliest.get(), total=total.get(), bound=bound.get(),
            next_bound=next_bound.get(), leader=leader.get(), word=word.get(),
        )  # fmt: skip


def _each_part(f: Function, num_tokens: int, write: Callable[[Value, int], None]) -> None:
    """`write` for the parts of this thread, with their sizes; a short last one is the last thread's."""
    begin, end = share(f, num_tokens // PART_TOKENS)
    with f.loop("part", begin, end) as part:
        write(part, PART_TOKENS)
    if num_tokens % PART_TOKENS:
        with f.when(f["thread"].compare("eq", f["threads"] - 1)):
            write(f.constant(I64, num_tokens // PART_TOKENS), num_tokens % PART_TOKENS)


def _field(kind: type[ctypes.Structure], name: str, base: Value) -> Value:
    """Address of a field of a structure at `base`."""
    return base.at(getattr(kind, name).offset)


def _first_token(part: Value) -> Value:
    return (part * PART_TOKENS).cast("trunc", I32)


def _no_place(f: Function) -> Value:
    return f.constant(I32X16, _LAST_TOKEN)


def _smaller(f: Function, a: Value, b: Value) -> Value:
    return f.select(a.compare("ult", b), a, b)


def _larger(f: Function, a: Value, b: Value) -> Value:
    return f.select(a.compare("ogt", b), a, b)


def _least(f: Function, x: Value) -> Value:
    """The smallest lane, unsigned."""
    for half in (8, 4, 2, 1):
        x = _smaller(f, x, x.shuffle([(lane + half) % LANES for lane in range(LANES)]))
    return x.lane(0)
