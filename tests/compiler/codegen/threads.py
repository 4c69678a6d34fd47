"""Runs the text of a kernel for one thread after the other, its indexes as numbers and all else left out.

A thread stops where it asks for a unit of work (`deal`), so whoever drives them decides who gets which.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Mapping
from typing import TypeAlias

from unsay.compiler.verify.kernels.text import FunctionText, Line

Number: TypeAlias = "int | tuple[str, int] | None"
"""An index, a pointer (its object, offset), or anything else."""

Thread: TypeAlias = "Generator[tuple[int, int], int, None]"
"""Yields (owner, how many) at each `deal`, and is sent the number it gets."""

_MOST_DEALS = 10_000

_BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "udiv": lambda a, b: a // b,
    "urem": lambda a, b: a % b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
}  # fmt: skip
_COMPARES = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "slt": lambda a, b: a < b, "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b, "sge": lambda a, b: a >= b,
}  # fmt: skip


def stores_of(kernel: FunctionText, threads: int, count: int, seed: int) -> Counter[tuple[int, int]] | None:
    """How often each place of `out` is written, as (offset, bytes), with threads getting on in an order of this seed;
    None where they ask for work without end."""
    written: Counter[tuple[int, int]] = Counter()
    dealt: Counter[int] = Counter()
    running = [_thread(kernel, number, threads, count, written) for number in range(threads)]
    asked = {thread: request for thread in running if (request := next(thread, None)) is not None}
    draw = random.Random(seed)
    for _ in range(_MOST_DEALS):
        if not asked:
            return written
        thread = draw.choice(list(asked))
        owner, many = asked.pop(thread)
        assert 0 <= owner < threads, owner
        number, dealt[owner] = dealt[owner], dealt[owner] + many
        try:
            asked[thread] = thread.send(number)
        except StopIteration:
            continue
    return None


def _thread(kernel: FunctionText, thread: int, threads: int, count: int, written: Counter[tuple[int, int]]) -> Thread:
    given: dict[str, Number] = {"%thread": thread, "%threads": threads, "%count": count}
    names: dict[str, Number] = {p.text: given.get(p.text, (p.text, 0)) for p in kernel.parameters}
    slots: dict[str, Number] = {}
    label, came_from = "entry", ""
    while label:
        for line in kernel.blocks[label]:
            if line.op == "call" and line.detail == ("deal",):
                _, owner, many = (_value(names, operand.text) for operand in line.operands)
                assert isinstance(owner, int) and isinstance(many, int) and line.result
                names[line.result] = yield owner, many
            elif line.op == "br":
                taken = 0 if not line.operands or _value(names, line.operands[0].text) else 1
                label, came_from = line.detail[taken], label
                break
            elif line.op == "ret":
                return
            elif line.op == "phi":
                names[str(line.result)] = _value(names, line.operands[line.detail.index(came_from)].text)
            elif line.op == "store":
                _store(line, names, slots, written)
            elif line.result:
                names[line.result] = _made(line, names, slots)


def _store(
    line: Line, names: Mapping[str, Number], slots: dict[str, Number], written: Counter[tuple[int, int]]
) -> None:
    value, place = line.operands
    where = names[place.text]
    assert isinstance(where, tuple), line
    if where[0] == "%out":
        written[where[1], 64 if value.type == "<16 x float>" else 4] += 1
    elif value.type == "i64":
        slots[where[0]] = _value(names, value.text)


def _made(line: Line, names: Mapping[str, Number], slots: Mapping[str, Number]) -> Number:
    values = [_value(names, operand.text) for operand in line.operands]
    match line.op:
        case "alloca":
            return str(line.result), 0
        case "getelementptr":
            base, offset = values
            assert isinstance(base, tuple) and isinstance(offset, int), line
            return base[0], base[1] + offset
        case "load" if line.type == "i64" and isinstance(values[0], tuple):
            return slots[values[0][0]]
        case "select" if isinstance(values[0], int):
            return values[1] if values[0] else values[2]
        case "icmp":
            return int(_COMPARES[line.detail[0]](*values)) if None not in values else None
        case "zext" | "sext" if isinstance(values[0], int):
            return values[0]
        case "call" if line.detail == ("interrupted",):
            return 0
        case op if op in _BINARY and all(isinstance(value, int) for value in values):
            return _BINARY[op](*values)
        case _:
            return None


def _value(names: Mapping[str, Number], text: str) -> Number:
    if text.startswith("%"):
        return names[text]
    return int(text) if text.lstrip("-").isdigit() else None
