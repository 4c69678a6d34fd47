"""Where a step's time goes: for each kind of kernel what it reads, how long it takes, and how long threads wait for it.

Run: python -m benchmarks.profile [--model M] [--threads N] [--tokens 1,8,512] [--context C] [--json]

The step is the one that is compiled, with a clock read (rdtsc) before and after each kernel, so the parts add up to the
whole; between two kernels is a barrier, or nothing. A kernel's bytes are its weights, and for `attend` the keys and
values of the context of each sequence as they are stored, once; multiply-adds are those with them. Activations count
for nothing. `limit` is the share of a kernel's time that reading its bytes alone would take, at the bandwidth that as
many threads only read the model's weights with (benchmarks/reading.py), the median of as many tries between the steps;
`python -m benchmarks.kv_reading` says what of that keys and values can reach. Up to 8 tokens are of as many sequences,
each at the end of a context of C tokens; more are of one, as a prompt or what is injected.
"""

from __future__ import annotations

import argparse
import mmap
import re
import tempfile
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.reading import Reader
from benchmarks.report import Report, parser
from unsay import hub
from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import ENTRIES, step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.scratch import step_scratch
from unsay.compiler.codegen.translate import compile_module
from unsay.compiler.compile import compile_model
from unsay.compiler.limits import LIMITS
from unsay.core import PAGE_TOKENS, Batch
from unsay.default_target import default_target
from unsay.image import ModelSpec
from unsay.isa.formats import DType, weight_bytes
from unsay.isa.targets import find_target
from unsay.kv.pages import PagePool
from unsay.runtime.image import Image, load_image
from unsay.runtime.interpreted import ArrayBatch, in_views
from unsay.runtime.native import NativeExecutor

_MOST_SEQUENCES = 8
_WEIGHTS = re.compile(r"^(\w+?)_(q4_0|q4_1|q8_0|f16|bf16|f32)_(\d+)x(\d+)")
_STAMP = """
; the time, for a thread and a place in the step
define internal void @stamp(i32 %thread, i64 %place) #0 {
  %row = sext i32 %thread to i64
  %first = mul i64 %row, NUM_PLACES
  %index = add i64 %first, %place
  %at = getelementptr i64, ptr inttoptr (i64 ADDRESS to ptr), i64 %index
  %now = call i64 @llvm.readcyclecounter()
  store volatile i64 %now, ptr %at
  ret void
}
declare i64 @llvm.readcyclecounter()
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of kernel in a step. us: from its start to the next kernel's; busy_us: of that a thread computes, on
    average. limit: share of `us` that reading num_bytes takes."""

    kernel: str
    calls: int
    us: float
    busy_us: float
    num_bytes: int
    gb_per_s: float
    gmac_per_s: float
    limit: float


class Stamped:
    """A step that notes the time. names: its kernels in order."""

    def __init__(self, image: Image, num_threads: int) -> None:
        spec, target = image.manifest.spec, find_target(image.manifest.target)
        own = step_scratch(spec, LIMITS.max_tokens).num_bytes
        limits = LIMITS.max_tokens, LIMITS.max_rows, LIMITS.max_threads
        step = Step(image.program, spec, *limits, image.manifest.arena_bytes - own)
        text = step_text(step, dot_unit(target), in_turns=False)
        start = text.index("define i32 @step(")
        end = text.index("\n}", start)
        self.names = re.findall(r"  call void @([\w.]+)\(", text[start:end])
        self.spec, self.num_threads = spec, num_threads
        self._memory = np.zeros((num_threads, 1 + 2 * len(self.names)), np.int64)
        stamps = _STAMP.replace("NUM_PLACES", str(self._memory.shape[1]))
        stamps = stamps.replace("ADDRESS", str(self._memory.ctypes.data))
        blob, symbols = compile_module(text[:start] + _stamped(text[start:end]) + text[end:] + stamps, target)
        self._image = copy(image)
        self._image.manifest = image.manifest._replace(entry={name: symbols[name] for name in ENTRIES})
        self._image.code = _executable(blob)

    def executor(self, num_pages: int) -> NativeExecutor:
        """To run it with. Its pages are written: the system has one page of zeros for all that are not, and a step
        would find that in its caches."""
        pages = PagePool(self._image.manifest.spec.kv_layout.page_bytes, num_pages).memory
        np.asarray(pages)[:] = 0x11
        return NativeExecutor(self._image, pages, self.num_threads)

    def times(self) -> NDArray[np.int64]:
        """Cycles of the last run: [thread][kernel][in it, from its end to the next]."""
        return np.diff(self._memory, axis=1).reshape(self.num_threads, len(self.names), 2)


def _stamped(step: str) -> str:
    """The text with the time noted before and after each kernel, and at the end."""
    places = iter(range(2 * step.count("call void @") + 1))
    made: list[str] = []
    for line in step.splitlines():
        is_noted = line.startswith("  call void @")
        if is_noted or line.startswith("  ret i32 0"):
            made.append(f"  call void @stamp(i32 %thread, i64 {next(places)})")
        made.append(line)
        if is_noted:
            made.append(f"  call void @stamp(i32 %thread, i64 {next(places)})")
    return "\n".join(made)


def _executable(blob: bytes) -> mmap.mmap:
    with tempfile.TemporaryFile() as file:
        file.write(blob)
        file.flush()
        return mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)


def make_batch(spec: ModelSpec, num_tokens: int, context: int) -> Batch:
    """Random ids at the end of contexts: of one sequence, or a token for each of a few."""
    alone = num_tokens > _MOST_SEQUENCES
    num_sequences, last = (1, context + num_tokens) if alone else (num_tokens, context + 1)
    num_pages = -(-last // PAGE_TOKENS)
    ids = np.random.default_rng(0).integers(0, spec.vocab_size, num_tokens, np.int32)
    positions = context + np.arange(num_tokens, dtype=np.int32) * int(alone)
    sequence = np.zeros(num_tokens, np.int32) if alone else np.arange(num_tokens, dtype=np.int32)
    tables = np.arange(num_sequences * num_pages, dtype=np.int32).reshape(num_sequences, num_pages)
    rows = np.array([num_tokens - 1], np.int32) if alone else np.arange(num_tokens, dtype=np.int32)
    return in_views(ArrayBatch(ids, positions, sequence, tables, rows))


def profile(stamped: Stamped, batch: Batch, repeats: int, reader: Reader) -> tuple[float, list[Kind]]:
    """The bandwidth of the reader, and medians over steps, kernels of one kind added up; the last row is the step."""
    executor = stamped.executor(np.asarray(batch.page_tables).size)
    cycles = 0.0
    samples: list[NDArray[np.int64]] = []
    bandwidths: list[float] = []
    for _ in range(repeats):
        bandwidths.append(reader.bandwidth())
        started = perf_counter()
        executor.run(batch)
        times = stamped.times()
        cycles += float(times[0].sum()) / (perf_counter() - started)
        samples.append(times)
    executor.close()
    bandwidth = float(np.median(bandwidths))
    us = np.median(np.array(samples), axis=0) / (cycles / repeats / 1e6)
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(stamped.names):
        groups.setdefault(re.sub(r"_t\d+", "", name), []).append(place)
    head = max(place for place, name in enumerate(stamped.names) if _WEIGHTS.match(name))
    num_tokens = {head: len(batch.logit_rows)}
    kinds: list[Kind] = []
    for name, places in groups.items():
        work = work_of(name, stamped.spec, batch, num_tokens.get(places[0], len(batch.token_ids)))
        kinds.append(_kind(name, us[:, places], work, bandwidth))
    return bandwidth, [*kinds, _whole(kinds, bandwidth)]


def work_of(kernel: str, spec: ModelSpec, batch: Batch, num_tokens: int) -> tuple[int, int]:
    """(bytes read, multiply-adds) of a call. num_tokens: of the batch, for which a product is made."""
    if found := _WEIGHTS.match(kernel):
        rows, width = int(found[3]), int(found[4])
        return weight_bytes(DType[found[2].upper()], rows, width), rows * width * num_tokens
    if not kernel.startswith("attend_"):
        return 0, 0
    seen = np.asarray(batch.positions, np.int64) + 1
    contexts = [seen[np.asarray(batch.sequence) == row].max() for row in range(len(batch.page_tables))]
    layer_bytes = spec.kv_layout.token_bytes // spec.num_layers
    return int(sum(contexts)) * layer_bytes, int(seen.sum()) * 2 * spec.num_heads * spec.head_dim


def _kind(name: str, us: NDArray[np.float64], work: tuple[int, int], bandwidth: float) -> Kind:
    calls, elapsed = us.shape[1], float(us[0].sum())
    num_bytes, macs = calls * work[0], calls * work[1]
    return Kind(name, calls, elapsed, float(us[:, :, 0].sum(axis=1).mean()), num_bytes, num_bytes / elapsed / 1e3,
                macs / elapsed / 1e3, num_bytes / bandwidth * 1e6 / elapsed)  # fmt: skip


def _whole(kinds: list[Kind], bandwidth: float) -> Kind:
    us, num_bytes = sum(kind.us for kind in kinds), sum(kind.num_bytes for kind in kinds)
    gmacs = sum(kind.gmac_per_s * kind.us for kind in kinds) / us
    calls, busy = sum(kind.calls for kind in kinds), sum(kind.busy_us for kind in kinds)
    return Kind("step", calls, us, busy, num_bytes, num_bytes / us / 1e3, gmacs, num_bytes / bandwidth * 1e6 / us)


def main() -> None:
    """Print a table for each number of tokens."""
    made = parser(__doc__)
    made.add_argument("--model", default="smollm2:135m")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--tokens", default="1,2,4,8,64,512", help="tokens of a step, between commas")
    made.add_argument("--context", type=int, default=1, help="tokens before those of the step")
    made.add_argument("--kv", default="auto", help="format of keys and values")
    made.add_argument("--repeats", type=int, default=21)
    args: argparse.Namespace = made.parse_args()
    report = Report(args)
    image = load_image(compile_model(Path(hub.resolve(args.model)), target=default_target(), kv=args.kv))
    stamped, reader = Stamped(image, args.threads), Reader(image.weights, args.threads)
    for num_tokens in map(int, args.tokens.split(",")):
        batch = make_batch(image.manifest.spec, num_tokens, args.context)
        bandwidth, kinds = profile(stamped, batch, args.repeats if num_tokens < 64 else 5, reader)
        report.add(f"T={num_tokens}", read_bandwidth=bandwidth)
        for kind in sorted(kinds, key=lambda kind: -kind.us):
            report.add(f"T={num_tokens}", kind)


if __name__ == "__main__":
    main()
