"""How fast the keys and values of a context can be read: in the order that attention reads them, and in one piece.

Run: python -m benchmarks.kv_reading [--model M] [--context C] [--kv f16] [--threads N] [--rounds N] [--json]

Nothing is computed. A token goes through a context layer by layer, by parts of 256 tokens and KV heads in them: the
keys of 16 pages, then their values (and scales), which lie a page of the pool apart, 1 or 2 KiB each. They are read
page after page, or some pages in turn, a line of each; `asked for ahead`, page after page, and what comes 8 KiB later
is asked for, as attention does. `in one piece` reads as many bytes as two streams a thread, which was fastest here. All
take turns, each after other memory was read, so that no cache has any of it. `of_one_piece` is the median over the
rounds of the time in one piece over the own: the part of memory's bandwidth that attention could reach if it only read.
"""

from __future__ import annotations

import ctypes
import statistics
from functools import partial
from itertools import cycle, groupby, islice, product

import numpy as np
from numpy.typing import NDArray

from benchmarks.reading import SUM_BYTES, added_up, read
from benchmarks.report import Report, parser
from unsay import hub
from unsay.benchmark.hardware import seconds_together
from unsay.compiler.codegen.amx_probe import mapped
from unsay.compiler.codegen.builder import I64, PTR, Function, Module
from unsay.compiler.codegen.kernels.attention_run import PART_PAGES
from unsay.compiler.codegen.translate import ATTRIBUTES
from unsay.compiler.pipeline import load
from unsay.core import PAGE_TOKENS
from unsay.default_target import default_target
from unsay.isa.kv import KV_FORMATS, KvLayout
from unsay.isa.targets import find_target
from unsay.kv.pages import PagePool
from unsay.runtime.buffers import address_of

Pieces = list[tuple[int, int]]
"""(offset, bytes) in the order they are read."""

_LINE_BYTES, _AHEAD_BYTES, _OTHER_BYTES = 64, 8192, 128 << 20


class Way:
    """A way to read memory. pieces: of each thread, `in_turn` of them at a time. ahead: how many such times later."""

    def __init__(self, pieces: list[Pieces], in_turn: int, ahead: int = 0) -> None:
        self._code, entry = mapped(*reading_module(in_turn, ahead > 0), find_target(default_target()))
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, ctypes.c_int64, ctypes.c_void_p)
        self._read = kind(address_of(self._code) + entry)
        self._tables = [_table(each, in_turn, ahead) for each in pieces]
        self._results = [ctypes.create_string_buffer(SUM_BYTES) for _ in pieces]

    def seconds(self, memory: memoryview) -> float:
        """Of one reading, by all threads."""
        return seconds_together(
            partial(self._read, address_of(memory), table.ctypes.data, len(table), ctypes.addressof(result))
            for table, result in zip(self._tables, self._results, strict=True)
        )


def _table(pieces: Pieces, in_turn: int, ahead: int) -> NDArray[np.int64]:
    """int64 [times][1 + in_turn + 1]: bytes, offsets (where too few are left, some again), what is asked for."""
    times: list[list[int]] = []
    for size, alike in groupby(pieces, lambda piece: piece[1]):
        offsets = [offset for offset, _ in alike]
        starts = range(0, len(offsets), in_turn)
        times += [[size, *islice(cycle(offsets[start : start + in_turn]), in_turn)] for start in starts]
    return np.array([[*row, later[1]] for row, later in zip(times, times[ahead:] + times[-1:] * ahead, strict=False)])


def reading_module(in_turn: int, is_asked_for: bool) -> tuple[Module, str]:
    """The loop `void read(memory, table, times, result)`, and its name."""
    module = Module(ATTRIBUTES)

    def write(f: Function) -> None:
        with added_up(f) as sums, f.loop("time", 0, f["times"]) as time:
            row = f["table"].at(time * (8 * (in_turn + 2)))
            size, *offsets, later = (f.load(I64, row.at(8 * place)) for place in range(in_turn + 2))
            with f.loop("at", 0, size, _LINE_BYTES) as at:
                for offset in offsets:
                    read(f["memory"].at(offset).at(at), _LINE_BYTES, sums)
                if is_asked_for:
                    f.prefetch(f["memory"].at(later).at(at))

    parameters = [(PTR, "memory"), (PTR, "table"), (I64, "times"), (PTR, "result")]
    return module, module.define("read", parameters, write, "reads", linkage="", inline=False)


def in_order(layout: KvLayout, num_pages: int, num_threads: int) -> list[Pieces]:
    """What attention of one token reads, a part of a KV head to each thread in turn."""
    pieces: list[Pieces] = [[] for _ in range(num_threads)]
    parts = [range(first, min(first + PART_PAGES, num_pages)) for first in range(0, num_pages, PART_PAGES)]
    units = product(range(layout.num_layers), parts, range(layout.num_kv_heads))
    for (layer, part, head), mine in zip(units, cycle(pieces), strict=False):
        for offset, size in _of_head(layout, layer, head):
            mine += [(page * layout.page_bytes + offset, size) for page in part]
    return pieces


def _of_head(layout: KvLayout, layer: int, head: int) -> Pieces:
    size = layout.head_dim * PAGE_TOKENS * layout.element_bytes
    pieces = [(layout.key_offset(layer, head), size), (layout.value_offset(layer, head), size)]
    return pieces + ([(layout.scale_offset(layer, head), 2 * PAGE_TOKENS * 4)] if layout.is_scaled else [])


def in_one_piece(num_bytes: int, num_threads: int) -> list[Pieces]:
    """As many bytes, in two pieces a thread."""
    size = num_bytes // (2 * num_threads) // _LINE_BYTES * _LINE_BYTES
    return [[(place * size, size) for place in (2 * thread, 2 * thread + 1)] for thread in range(num_threads)]


def measure(layout: KvLayout, context: int, num_threads: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in each round."""
    num_pages = -(-context // PAGE_TOKENS)
    pool, other = PagePool(layout.page_bytes, num_pages).memory, np.ones(_OTHER_BYTES // 8, np.int64)
    np.asarray(pool)[:] = 1
    pieces = in_order(layout, num_pages, num_threads)
    ways = {"in one piece": Way(in_one_piece(num_pages * layout.used_bytes, num_threads), 2)}
    ways["page after page"] = Way(pieces, 1)
    ways |= {f"{in_turn} pages in turn": Way(pieces, in_turn) for in_turn in (2, 4, 8)}
    ways["asked for ahead"] = Way(pieces, 1, ahead=_AHEAD_BYTES // max(size for _, size in pieces[0]))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            other.sum()
            seconds[name].append(way.seconds(pool))
    return seconds


def main() -> None:
    """Print each way of each format."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--context", type=int, default=2048)
    made.add_argument("--kv", choices=list(KV_FORMATS), action="append", help="repeatable (default: f16 and int8)")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--rounds", type=int, default=41)
    args = made.parse_args()
    report = Report(args)
    for kv in args.kv or ("f16", "int8"):
        layout = load(hub.resolve(args.model), kv).spec.kv_layout
        num_bytes = -(-args.context // PAGE_TOKENS) * layout.used_bytes
        seconds = measure(layout, args.context, args.threads, args.rounds)
        for name, samples in seconds.items():
            ratios = [whole / own for whole, own in zip(seconds["in one piece"], samples, strict=True)]
            report.add(
                f"{kv}, {name}", num_bytes=num_bytes, gb_per_s=num_bytes / statistics.median(samples) / 1e9,
                of_one_piece=statistics.median(ratios),
            )  # fmt: skip


if __name__ == "__main__":
    main()
