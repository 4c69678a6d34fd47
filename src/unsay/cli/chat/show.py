"""What the chat shows, as text: pure functions of what a session says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unsay.cli.output import visible

if TYPE_CHECKING:
    from unsay.session.correction import Correction
    from unsay.session.history import Entry
    from unsay.session.text import Diff

MARK_EVERY = 10
"""Tokens between two positions shown in an answer."""

_EXCERPT = 60


def one_line(text: str) -> str:
    """The text on one line."""
    return visible(text.replace("\n", "⏎").replace("\t", " "))


def excerpt(text: str, length: int = _EXCERPT) -> str:
    """The end of a text, on one line."""
    line = one_line(text)
    return line if len(line) <= length else "…" + line[1 - length :]


def positions(tokens: Sequence[str], first: int = 0, dim: tuple[str, str] = ("", "")) -> str:
    """An answer with the index of every tenth token before it; `first` is the index of tokens[0]."""
    before, after = dim
    shown: list[str] = [] if first == 0 else ["… "]
    for index, token in enumerate(tokens, start=first):
        if index % MARK_EVERY == 0:
            shown.append(f"{before}[{index}]{after}")
        shown.append(visible(token))
    return "".join(shown) + f"{before}[{first + len(tokens)}]{after}"


def truth(correction: Correction) -> str:
    """The line after a correction: what was kept, what was dropped, and what it cost."""
    counts = f"{correction.num_kept} tokens kept, {correction.num_dropped} dropped, {correction.num_injected} injected"
    costs: list[str] = []
    if correction.rollback_s > 0:
        costs.append(f"rollback {duration(correction.rollback_s)}")
    if correction.first_token_s is not None:
        costs.append(f"first new token after {duration(correction.first_token_s)} ({correction.num_computed} computed)")
    return f"[{counts}; {', '.join(costs)}]" if costs else f"[{counts}]"


def duration(seconds: float) -> str:
    """A time with the unit that fits."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def history_lines(entries: Sequence[Entry]) -> list[str]:
    """One line an entry; `*` is where the session stands."""
    return [
        f"{'*' if entry.is_current else ' '}{entry.number:>3} {'' if entry.parent is None else entry.parent:>3}  "
        f"{entry.verb:<9}{entry.num_tokens:>6} tokens  {excerpt(entry.text)}"
        for entry in entries
    ]


def diff_lines(diff: Diff) -> list[str]:
    """What two states differ in."""
    lines = [f"  {diff.num_common} tokens in common"]
    lines += [f"- {line}" for line in visible(diff.removed).splitlines()]
    return lines + [f"+ {line}" for line in visible(diff.added).splitlines()]
