"""The entries `survey` and `race` (codegen/kernels/scan.py): every access is inside the arrays they are given.

They are called for a row of scores of any length, filled up to a multiple of 32, and write a number for each token or
each part of it (isa/scan.py):

    row, words, bounds         4 * count bytes
    largest, weight, reach     4 * parts bytes,  1024 * parts the least that is not below count
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.scan import add_scan
from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.bounds import check_inside
from unsay.compiler.verify.kernels.machine import Machine
from unsay.compiler.verify.kernels.text import FunctionText, functions
from unsay.compiler.verify.kernels.values import OPAQUE, Pointer, Scalar, Value
from unsay.compiler.verify.obligation import Result, Status
from unsay.compiler.verify.smt import z3
from unsay.isa.scan import PART_TOKENS, SCAN_TOKENS

ENTRIES = ("survey", "race")

_MOST_TOKENS = 1 << 31
_OF_PARTS = frozenset(["largest", "weight", "reach"])


def prove_scan(text: str | None = None) -> Result:
    """The claim above for both. text: of a step, or another text of them (a mutant)."""
    module = functions(text or _text())
    worlds = [_check(module, name) for name in ENTRIES]
    total, solved = (sum(numbers) for numbers in zip(*((w.num_accesses, w.num_solved) for w in worlds), strict=True))
    return Result(Status.PROVED, f"{len(worlds)} kernels, {total} accesses, {solved} by LIA")


def _text() -> str:
    module = Module("")
    add_scan(module)
    return module.text()


@dataclass(slots=True)
class _ScanWorld:
    """An entry and its arrays: scores, words and bounds are opaque."""

    name: str
    sizes: Mapping[str, Affine]
    variable_range: tuple[int, int] = (0, 0)
    has_data: bool = False
    num_accesses: int = 0
    num_solved: int = 0

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        return OPAQUE

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        """Inside, or raise NotProvedError."""
        self.num_accesses += 1
        limit = self.sizes.get(pointer.object) or Affine(machine.stack_bytes[pointer.object])
        self.num_solved += check_inside(machine, pointer, size, limit, self.name)

    def enter(self, machine: Machine, name: str, arguments: Sequence[Value]) -> bool:
        """Every function is executed."""
        return False


def _check(module: Mapping[str, FunctionText], name: str) -> _ScanWorld:
    """Execute one entry for a row of any length; raises NotProvedError."""
    sizes: dict[str, Affine] = {}
    world = _ScanWorld(name, sizes)
    machine = Machine(module, world)
    count = of(machine.symbol("vectors", 0, _MOST_TOKENS // SCAN_TOKENS)) * SCAN_TOKENS
    parts = of(machine.symbol("parts", 0, _MOST_TOKENS // PART_TOKENS))
    least, most = count.term(), count.term() + PART_TOKENS
    machine.define(z3.And(least <= parts.term() * PART_TOKENS, parts.term() * PART_TOKENS < most))
    arguments: list[Value] = []
    for parameter in module[name].parameters:
        if parameter.type == "ptr":
            sizes[parameter.text] = (parts if parameter.text.lstrip("%") in _OF_PARTS else count) * 4
            arguments.append(Pointer(parameter.text, Affine()))
        else:
            arguments.append(count if parameter.type == "i64" else OPAQUE)
    machine.run(name, *arguments)
    return world
