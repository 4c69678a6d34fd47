"""What is not proved of a step's text, function by function, so that nobody takes a table of proofs for all of it.

    tiles of products, their notes, merges of parts     what they compute (products.py, softmax.py), and their accesses
    what a step, `survey` or `race` calls besides       their accesses (bounds.py, scan.py)
    how threads start, wait, meet, and share work       nothing: atomics and system calls are not followed

A tile or merge whose text is not what the claim about it says is refuted, so names stand for claims here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from unsay.compiler.verify.kernels.lines import NOT_FOLLOWED
from unsay.compiler.verify.kernels.products import tile_names
from unsay.compiler.verify.kernels.scan import ENTRIES
from unsay.compiler.verify.kernels.softmax import merges_in
from unsay.compiler.verify.kernels.text import functions

_DEFINE = re.compile(r"^define .*?@([\w.]+)\(", re.MULTILINE)
_CALL = re.compile(r"\bcall [^@\n]*@([\w.]+)\(")


@dataclass(frozen=True, slots=True)
class Gap:
    """Functions of a step, of `of` in all, of which this is not proved. Accesses are, where it is the computation."""

    what: Literal["computation", "anything"]
    of: int
    functions: tuple[str, ...]


def gaps(text: str) -> list[Gap]:
    """What no obligation of `step_claims` is about, of the text of a step."""
    calls = dict(_calls(text))
    followed = _followed(calls, frozenset(functions(text)) - NOT_FOLLOWED)
    computed = tile_names(text) | merges_in(text).keys()
    return [
        Gap("computation", len(calls), tuple(sorted(followed - computed))),
        Gap("anything", len(calls), tuple(sorted(calls.keys() - followed))),
    ]


def _calls(text: str) -> Iterator[tuple[str, set[str]]]:
    """Each function of a text, and what it calls."""
    _, *parts = _DEFINE.split(text)
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        yield name, set(_CALL.findall(body))


def _followed(calls: Mapping[str, set[str]], readable: frozenset[str]) -> set[str]:
    """What is executed symbolically: the step, the entries for the sampler, and what these call."""
    found: set[str] = set()
    waiting = {"step", *ENTRIES}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= (calls[name] & readable) - found
    return found
