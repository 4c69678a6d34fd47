"""How a row stands, given the figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.peers.contestants import LLAMA
from benchmarks.peers.results import Results
from benchmarks.peers.rows import Bound, Row

_MATCHED = 1.01
"""Perplexity over the best contestant's up to which an engine counts as doing the same arithmetic."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """ours, peer and limit: figures in the row's unit; the limit is what the machine can do at best. ratio: ours over
    the peer's, or over the bound. is_met: None where something is missing, `why` says what. scaled: ours over
    llama.cpp's figure times the lead of the best recorded peer (Row.lead)."""

    row: Row
    ours: float | None
    peer_name: str | None
    peer: float | None
    ratio: float | None
    is_met: bool | None
    why: str = ""
    limit: float | None = None
    scaled: float | None = None


def judge(row: Row, results: Results) -> Verdict:
    """Against the best peer that has a figure, or against the row's bound."""
    figures = results.figures.get(row.work, {})
    limit, ours, llama = (figures.get(name) for name in (row.limit, row.ours, LLAMA))
    scaled = ours.value / (llama.value * row.lead) if ours and llama and row.lead else None
    return replace(_judged(row, results), limit=limit.value if limit else None, scaled=scaled)


def _judged(row: Row, results: Results) -> Verdict:
    figures = results.figures.get(row.work, {})
    best = best_peer(row, results)
    peer = figures[best].value if best else None
    if row.ours not in figures:
        why = results.unable.get(row.work, {}).get(row.ours, "not measured in this run")
        return Verdict(row, None, best, peer, None, None, why)
    ours = figures[row.ours].value
    if isinstance(row.target, Bound):
        return _compared(row, ours, best, peer, row.target.limit, 1.0)
    if peer is None:
        return Verdict(row, ours, None, None, None, None, _why_no_peer(row, results))
    return _compared(row, ours, best, peer, peer, row.target.factor)


def best_peer(row: Row, results: Results) -> str | None:
    """The name of the row's best peer here; None if none has a figure. Who is less accurate does not count."""
    figures = results.figures.get(row.work, {})
    outside = inaccurate(results)
    here = [name for name in row.peers if name in figures and name.partition(",")[0] not in outside]
    choose = max if row.is_more_better else min
    return choose(here, key=lambda name: figures[name].value, default=None)


def inaccurate(results: Results) -> dict[str, float]:
    """Those that do other arithmetic than the file asks for, and their perplexity over the best one's."""
    over: dict[str, float] = {}
    for work in ("perplexity", "perplexity other"):
        figures = results.figures.get(work, {})
        best = min((figure.value for figure in figures.values()), default=1.0)
        over |= {name: figure.value / best for name, figure in figures.items() if figure.value > _MATCHED * best}
    return over


def _compared(row: Row, ours: float, best: str | None, peer: float | None, other: float, factor: float) -> Verdict:
    ratio = ours / other
    return Verdict(row, ours, best, peer, ratio, ratio >= factor if row.is_more_better else ratio <= factor)


def _why_no_peer(row: Row, results: Results) -> str:
    unable = results.unable.get(row.work, {})
    return "; ".join(f"{name}: {unable[name]}" for name in row.peers if name in unable) or "no peer was measured"
