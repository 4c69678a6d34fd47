"""Mutants of a kernel's LLVM text: one instruction changed, in ways a slip of the pen would."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

_OTHER = {
    "add": "sub", "sub": "add", "mul": "add", "and": "or", "xor": "and", "lshr": "shl", "shl": "lshr", "fmul": "fadd",
    "fadd": "fmul", "sitofp": "uitofp", "slt": "sle",
}  # fmt: skip
_NUMBER = re.compile(r"(?<=[ (])\d+(?=[),]|$)")
_ARGUMENT = re.compile(r"(<[^>]+>) (%\w+)(?=[,)])")


def mutants(text: str, seed: int, count: int) -> list[str]:
    """`count` other texts of a module of one function, each with one line changed that a store depends on."""
    lines = text.splitlines()
    live = _lines_that_count(lines)
    made = [(place, line) for place in sorted(live) for line in _changed(lines[place])]
    chosen = random.Random(seed).sample(made, count)
    return ["\n".join([*lines[:place], line, *lines[place + 1 :]]) for place, line in chosen]


def _changed(line: str) -> Iterator[str]:
    """The line with another instruction, another number, or one operand in two places."""
    words = line.split(" ")
    for place, word in enumerate(words):
        if word in _OTHER and not line.endswith(", 0"):
            yield " ".join([*words[:place], _OTHER[word], *words[place + 1 :]])
    if "align" not in line and "shufflevector" not in line and "insertelement" not in line and "icmp ne" not in line:
        for found in _NUMBER.finditer(line):
            yield f"{line[: found.start()]}{int(found[0]) + 1}{line[found.end() :]}"
    given = _ARGUMENT.findall(line.partition("(")[2]) if "call" in line else []
    for (kind, name), (other_kind, other) in itertools.pairwise(given):
        changed = line.replace(f"{other_kind} {other})", f"{kind} {name})")
        if kind == other_kind and changed != line:
            yield changed


def _lines_that_count(lines: list[str]) -> set[int]:
    """Lines that a store or a branch depends on: not prefetches, nor what nothing reads."""
    made = {line.split()[0]: place for place, line in enumerate(lines) if re.match(r"  %\S+ = ", line)}
    found: set[int] = set()
    waiting = [place for place, line in enumerate(lines) if re.match(r"  (store|br i1) ", line)]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += [made[name] for name in re.findall(r"%[\w.]+", lines[place]) if name in made]
    return {place for place in found if not re.search(r" = (alloca|phi)|^  br ", lines[place])}
