"""The targets: one row for each thing that was promised, and what it is judged by."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers.contestants import (
    LLAMA,
    LLAMA_INT8,
    MEMORY,
    MEMORY_INT8,
    MULTIPLYING,
    OPENVINO,
    OPENVINO_INT8,
    OURS,
    OURS_FAST,
    OURS_GUESSING,
    OURS_INT8,
)
from benchmarks.peers.recorded import LEADS


@dataclass(frozen=True, slots=True)
class Times:
    """Our figure over the best peer's is at least `factor` (where more is better) or at most (where less is)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Our figure itself is at least or at most `limit`."""

    limit: float


@dataclass(frozen=True, slots=True)
class Row:
    """work: whose figures it is about; several rows may be about one. group: what --rows takes. is_more_better: else
    less is. ours: which of our contestants is judged. peers: against whom; the best of those that are here counts.
    limit: the contestant that is what the machine can do at best. lead: what the best recorded peer reached over what
    llama.cpp without AMX did on that machine (recorded.py), by which llama.cpp's figure here may be scaled."""

    group: str
    work: str
    title: str
    unit: str
    is_more_better: bool
    target: Times | Bound
    ours: str = OURS
    peers: tuple[str, ...] = ()
    limit: str = ""
    lead: float | None = None


_DECODERS = (LLAMA, LLAMA_INT8, OPENVINO, OPENVINO_INT8)


def _decode(work: str, title: str, factor: float, ours: str = OURS, peers: tuple[str, ...] = _DECODERS) -> Row:
    limit = MEMORY_INT8 if ours == OURS_INT8 else MEMORY
    lead = LEADS[work] if peers is _DECODERS else None
    return Row("decode", work, f"decode, {title}", "tok/s", True, Times(factor), ours, peers, limit, lead)


def _guess(work: str, title: str) -> Row:
    peers = (LLAMA, OPENVINO)
    return Row("speculation", work, f"decode with guesses, {title}", "tok/s", True, Times(2.5), OURS_GUESSING, peers)


def _prefill(length: int, title: str, factor: float, ours: str = OURS, peers: tuple[str, ...] = (LLAMA,)) -> Row:
    work, name = f"prefill {length}", f"prefill {length}, {title}"
    lead = LEADS.get(f"prefill {length}, {title.partition(', against ')[2]}")
    return Row("prefill", work, name, "tok/s", True, Times(factor), ours, peers, MULTIPLYING, lead)


def _batch(context: int) -> Row:
    title = f"batch of 8, aggregate decode, context {context}"
    lead, peers = LEADS.get(f"batch {context}"), (LLAMA, OPENVINO)
    return Row("batch", f"batch {context}", title, "tok/s", True, Times(2.0), peers=peers, limit=MEMORY, lead=lead)


def _latency(group: str, work: str, title: str, limit_us: float) -> Row:
    return Row(group, work, title, "us", False, Bound(limit_us))


def _correction(context: int) -> Row:
    title = f"correction: cancel to first new token, 12 injected, context {context}"
    return Row("correction", f"correction {context}", title, "ms", False, Times(0.25), peers=(LLAMA, OPENVINO))


ROWS = (
    _decode("decode 0", "context ~0", 1.25),
    Row("decode", "decode 0 of limit", "decode, context ~0, part of what reading memory allows", "", True, Bound(0.8)),
    _decode("decode 512", "context 512, f16 KV", 1.8),
    _decode("decode 2048", "context 2048, f16 KV", 3.0),
    _decode("decode 512", "context 512, int8 KV", 1.8, OURS_INT8),
    _decode("decode 2048", "context 2048, int8 KV", 3.0, OURS_INT8),
    _decode("decode 512", "context 512, int8 KV over our f16 KV", 1.0, OURS_INT8, (OURS,)),
    _decode("decode 2048", "context 2048, int8 KV over our f16 KV", 1.0, OURS_INT8, (OURS,)),
    _guess("edit copied", "a text written again with a change"),
    _guess("edit dropped", "a record corrected, the dropped tail as the draft"),
    _prefill(512, "exact, f16 KV, against llama.cpp's best", 1.5),
    _prefill(2048, "exact, f16 KV, against llama.cpp's best", 1.7),
    _prefill(512, "exact, int8 KV, against llama.cpp's best", 1.6, OURS_INT8),
    _prefill(2048, "exact, int8 KV, against llama.cpp's best", 2.5, OURS_INT8),
    _prefill(512, "exact, against llama.cpp without AMX", 6.0),
    _prefill(2048, "exact, against llama.cpp without AMX", 6.0),
    _prefill(512, "fast class, against the best of all", 1.0, OURS_FAST, (LLAMA, OPENVINO)),
    _prefill(2048, "fast class, against the best of all", 1.1, OURS_FAST, (LLAMA, OPENVINO)),
    _batch(32),
    _batch(512),
    _latency("stop", "stop decode p99", "interrupt to stop in decode, p99", 100.0),
    _latency("stop", "stop prefill p99", "interrupt to stop in a 2048-token prefill, p99", 217.0),
    _latency("rollback", "rollback p50", "rollback, 8000-token context, p50", 5.0),
    _latency("rollback", "fork p50", "fork, 8000-token context, p50", 5.0),
    _correction(512),
    _correction(2048),
    _correction(6000),
    Row("start", "start warm", "process start to first token, warm cache", "s", False, Bound(0.35)),
    Row("start", "start cold", "process start to first token, cold cache", "s", False, Bound(4.0)),
    Row("memory", "memory", "peak memory beyond the model file and 2,112 tokens of f16 KV", "MB", False, Bound(120.0)),
    Row("perplexity", "perplexity", "perplexity, WikiText-2 test, context 512", "", False, Bound(19.07)),
    Row("perplexity", "perplexity other", "perplexity, another text, over the best peer's", "", False, Times(1.005),
        peers=(LLAMA, OPENVINO)),
    Row("perplexity", "perplexity", "perplexity, WikiText-2 test, over llama.cpp's on the same windows", "", False,
        Times(1.003), peers=(LLAMA,)),
    Row("perplexity", "perplexity", "perplexity, int8 KV over f16 KV", "", False, Times(1.005), OURS_INT8, (OURS,)),
    Row("perplexity", "perplexity", "perplexity, fast class over exact", "", False, Times(1.003), OURS_FAST, (OURS,)),
)  # fmt: skip

GROUPS = tuple(dict.fromkeys(row.group for row in ROWS))
