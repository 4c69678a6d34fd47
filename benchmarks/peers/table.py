"""The verdicts as a table: for a terminal, or as a page in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers.contestants import NOT_HERE
from benchmarks.peers.recorded import RECORDED, SOURCE
from benchmarks.peers.results import Results
from benchmarks.peers.rows import Bound, Row
from benchmarks.peers.verdict import Verdict, inaccurate

_TITLE = """# Results

Written by `python -m benchmarks.compare`. What the comparison is, and why rows are missed: docs/performance.md."""

_HEAD = (
    "work", "target", "best peer here", "ours", "ratio", "met", "what this machine can do, and the part reached",
    f"recorded elsewhere ({SOURCE})",
)  # fmt: skip


def cells(verdict: Verdict) -> tuple[str, ...]:
    """A row of the table, one text a column of `_HEAD`."""
    row = verdict.row
    return (
        row.title, _target(row), _peer(verdict), _number(verdict.ours, row.unit) if verdict.ours is not None else "-",
        f"{verdict.ratio:.3f}x" if verdict.ratio is not None else "-", _met(verdict), _limit(verdict),
        _recorded(verdict),
    )  # fmt: skip


def _recorded(verdict: Verdict) -> str:
    """The best figures of another machine, and how far from them ours is if llama.cpp's figure here is scaled alike."""
    text = RECORDED.get(verdict.row.work, "")
    return f"{text}; as far ahead of llama.cpp here: {verdict.scaled:.2f}x" if verdict.scaled else text


def plain(verdicts: Sequence[Verdict]) -> str:
    """Columns as wide as they need to be."""
    lines = [_HEAD, *map(cells, verdicts)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(_HEAD))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def page(verdicts: Sequence[Verdict], results: Results) -> str:
    """Machine and command, the targets, every contestant's figures, and what is to be said of them."""
    machine = [f"- {name}: {value}" for name, value in {**results.machine, **results.versions}.items()]
    return "\n\n".join(
        (
            _TITLE, "\n".join(machine), _markdown_table((_HEAD, *map(cells, verdicts))),
            "Every contestant's median, and in brackets the least and the most of its samples:",
            _markdown_table(_everything(results)), "\n".join(f"- {line}" for line in remarks(results)) + "\n",
        )
    )  # fmt: skip


def remarks(results: Results) -> list[str]:
    """What was noted, how disturbed the figures are, and who could not take part."""
    noted = [f"{work}: {text}" for work, texts in results.notes.items() for text in texts]
    unable = [f"{work}: {who}: {why}" for work, reasons in results.unable.items() for who, why in reasons.items()]
    disturbed = [
        f"{work}: {who}: other programs had up to {100 * figure.others:.0f} % of the cores during a sample"
        for work, figures in results.figures.items() for who, figure in figures.items() if figure.others > 0.1
    ]  # fmt: skip
    outside = [
        f"{name}: perplexity {over:.3f} of the best contestant's: less accurate, no target is about it"
        for name, over in inaccurate(results).items()
    ]
    return [*outside, *noted, *unable, *disturbed, *(f"{name}: not measured: {why}" for name, why in NOT_HERE.items())]


def _everything(results: Results) -> list[tuple[str, ...]]:
    names = list(dict.fromkeys(name for figures in results.figures.values() for name in figures))
    lines = [("work", *names)]
    for work, figures in results.figures.items():
        shown = {
            name: f"{_digits(figure.value)} ({_digits(min(figure.samples))} .. {_digits(max(figure.samples))})"
            for name, figure in figures.items()
        }
        lines.append((work, *(shown.get(name, "") for name in names)))
    return lines


def _markdown_table(lines: Sequence[Sequence[str]]) -> str:
    head, *body = ("| " + " | ".join(line) + " |" for line in lines)
    return "\n".join((head, "|" + "---|" * len(lines[0]), *body))


def _target(row: Row) -> str:
    sign = ">=" if row.is_more_better else "<="
    if isinstance(row.target, Bound):
        return f"{sign} {_number(row.target.limit, row.unit)}"
    return f"{sign} {row.target.factor:g}x"


def _peer(verdict: Verdict) -> str:
    if verdict.peer is None:
        return "-"
    return f"{verdict.peer_name} {_number(verdict.peer, verdict.row.unit)}"


def _met(verdict: Verdict) -> str:
    if verdict.is_met is None:
        return f"not known: {verdict.why}"
    return "yes" if verdict.is_met else "no"


def _limit(verdict: Verdict) -> str:
    if verdict.limit is None:
        return ""
    part = f": {verdict.ours / verdict.limit:.2f}" if verdict.ours is not None else ""
    return f"{verdict.row.limit} {_number(verdict.limit, verdict.row.unit)}{part}"


def _number(value: float, unit: str) -> str:
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    """Three digits where there are fewer before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
