"""The inside of attention (N9): what one part of 256 keys gives the G query heads of a KV head, and how parts merge.

Query tokens of one sequence go through a part together, a block of pages at a time:

    scores      of a block, for each token that sees it                                 attention_products.py
    softmax     for each token and head: weights, m and l
    values      of a block, for each token that sees it                                 attention_products.py

so that a block is fetched once for all of them, and stays in the first cache meanwhile. Many rows over int8 pages are
multiplied on AMX tiles where there are some, all of a run and of a part together (attention_tiles.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from unsay.compiler.codegen.builder import F32, F32X16, I32, I32X16, I64, PTR, Function, Module, Value, vector
from unsay.compiler.codegen.kernels.attention_floats import FloatProducts
from unsay.compiler.codegen.kernels.attention_integers import IntegerProducts
from unsay.compiler.codegen.kernels.attention_products import Products
from unsay.compiler.codegen.kernels.attention_run import (
    PART_TOKENS,
    Attention,
    Part,
    clean_name,
    last_position,
    maximum_at,
    page_table,
    total_at,
)
from unsay.compiler.codegen.kernels.attention_tiles import FEWEST_ROWS, TileProducts
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.vector import (
    LANES,
    exp,
    largest,
    leave_if_interrupted,
    maximum,
    tree_sum,
)
from unsay.core import PAGE_TOKENS

_PAGES = 2
"""Pages whose exponentials are computed together: each alone is a chain of operations that wait for one another."""


def part_function(module: Module, unit: DotUnit, shape: Attention) -> str:
    """void part(args, pool, q f32 [T][q_width], states, next_pool, stride, part, first, end, next_part).

    The state of each token of a run that has a key in the part, `stride` bytes apart. next_pool, next_part: what this
    thread is likely to compute after this.
    """

    def write(f: Function) -> None:
        part = _part(f, unit, shape)
        if shape.on_tiles:
            many = part.rows.compare("sge", FEWEST_ROWS)
            with f.when(many):
                f.run(
                    _define(module, shape, "on_tiles", lambda f: _write(TileProducts(_part(f, unit, shape)))),
                    *f.parameters,
                )
            f.return_if(many)
        _write(IntegerProducts(part) if shape.layout.is_scaled else FloatProducts(part))

    return _define(module, shape, "part", write)


def _define(module: Module, shape: Attention, what: str, write: Callable[[Function], None]) -> str:
    parameters = [(PTR, name) for name in ("args", "pool", "q", "states", "next_pool")]
    parameters += [(I64, name) for name in ("stride", "part", "first", "end", "next_part")]
    doc = f"states of {shape.group} heads of {shape.layout.head_dim} over the keys of one part, of tokens first..end"
    return module.define(clean_name(f"attend_{what}_{shape.name}_{shape.scale.hex()[4:]}"), parameters, write, doc)


def _part(f: Function, unit: DotUnit, shape: Attention) -> Part:
    last, table = last_position(f, f["first"], f["end"]), page_table(f, f["first"])
    return Part(f, unit, shape, table, last, f.buffer(shape.run_tokens * shape.group * PART_TOKENS * 4))


def _write(products: Products) -> None:
    f, part, shape = products.f, products.part, products.part.shape
    with part.queries() as query:
        products.begin(query)
    with f.loop("block", 0, part.pages, products.block_pages) as block:
        leave_if_interrupted(f)
        products.score_run(block)
    with part.queries() as query:
        with f.loop("head", 0, shape.group) as head:
            places = maximum_at(shape, part.state(query), head), total_at(shape, part.state(query), head)
            f.run(_softmax_function(f.module), part.score(query, head), query.keys, *places)
        products.weigh(query)
    with f.loop("block", 0, part.pages, products.block_pages) as block:
        leave_if_interrupted(f)
        products.add_values_of_run(block)
    with part.queries() as query:
        products.finish(query)


def _softmax_function(module: Module) -> str:
    """void softmax_part(scores f32 [256], keys, m, l): m = max s, e[t] = exp(s[t] - m), l = sum16(e); e in place, 0 for
    the rest of the last page."""

    def write(f: Function) -> None:
        pages = (f["keys"] + (PAGE_TOKENS - 1)) // PAGE_TOKENS
        _hide(f, f["scores"].at((pages - 1) * (PAGE_TOKENS * 4)), f["keys"] - (pages - 1) * PAGE_TOKENS)
        best, total = f.slot(F32X16, -math.inf), f.slot(F32X16, 0.0)
        with f.loop("page", 0, pages) as page:
            scores = f.load(F32X16, f["scores"].at(page * (PAGE_TOKENS * 4)), align=64)
            best.set(maximum(f, best.get(), scores))
        m = largest(f, best.get())
        whole = pages // _PAGES * _PAGES
        for begin, end, step in ((0, whole, _PAGES), (whole, pages, 1)):
            lanes = step * LANES
            with f.loop("page", begin, end, step) as page:
                address = f["scores"].at(page * (PAGE_TOKENS * 4))
                e = exp(f, f.load(vector(F32, lanes), address, align=64) - m.splat(lanes))
                for first in range(0, lanes, LANES):
                    total.set(total.get() + e.shuffle(range(first, first + LANES)))
                f.store(e, address, align=64)
        f.store(m, f["m"], align=4)
        f.store(tree_sum(total.get()), f["l"], align=4)

    parameters = [(PTR, "scores"), (I64, "keys"), (PTR, "m"), (PTR, "l")]
    return module.define("softmax_part", parameters, write, "weights of a part, their sum, the largest score")


def _hide(f: Function, scores: Value, count: Value) -> None:
    """-inf for the scores of a page beyond the first `count`: of keys that are not seen."""
    lanes = Value(f, I32X16, f"<{', '.join(f'i32 {lane}' for lane in range(LANES))}>")
    seen = lanes.compare("slt", count.cast("trunc", I32).splat(LANES))
    f.store(f.select(seen, f.load(F32X16, scores, align=64), -math.inf), scores, align=64)


def merge_function(module: Module, shape: Attention) -> str:
    """void merge_states(state, next): the parts so far and the next one."""
    dim, group = shape.layout.head_dim, shape.group

    def write(f: Function) -> None:
        for head in range(group):
            where = [(maximum_at(shape, f[name], head), total_at(shape, f[name], head)) for name in ("state", "next")]
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
