"""Matrix products with quantised weights: every tile function of every target computes N4, for any number of blocks.

The tile function is the one `codegen/kernels/tile.py` emits, run after the function that takes its notes. Both are
executed symbolically once; then, for each token of the tile and each of the 16 rows of its row group, or of its two,

    before the loop over blocks     acc = 0
    one iteration, any block b      acc' = N4(b, acc)     the same operations on floats in the same order, and i the
                                                          exact integer for all weights and all activations
    after it                        sums[group][token][row] is acc

so sums[group][token][row] is N4 of the row and the token by induction on the number of blocks. Expected values are
built here from the words of docs/numerics.md (N4) and isa/formats.py, not from the kernels.

Taken for granted of x, what N3 and N3w give: bytes in -127..127, sum_b the exact sum of q, `wide` 0 or 1, and hi zero
where it is 0.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.dot import DotUnit
from unsay.compiler.codegen.kernels.tile import Product, notes_function, pair_function, tile_function
from unsay.compiler.verify.kernels import lanes
from unsay.compiler.verify.kernels.affine import Affine, of
from unsay.compiler.verify.kernels.equality import same
from unsay.compiler.verify.kernels.lanes import Lane
from unsay.compiler.verify.kernels.machine import Loop, Machine
from unsay.compiler.verify.kernels.text import FunctionText, KernelTextError, functions
from unsay.compiler.verify.kernels.values import Opaque, Pointer, Scalar, Value, Vector, call, f32
from unsay.compiler.verify.obligation import NotProvedError, Result, Status, all_of
from unsay.compiler.verify.smt import Term, decide, z3
from unsay.isa.formats import QUANT_BLOCK, QUANTISED_WEIGHTS, ROW_GROUP, DType, group_block_bytes

Kind: TypeAlias = Literal["tile", "pair"]

_GROUPS: dict[Kind, tuple[str, ...]] = {"tile": ("weights",), "pair": ("weights", "second")}
_TILE = re.compile(r"define \S+ \S+ @(tile|pair)_(\w+)_k(\d+)_(\w+)_t(\d+)_x(\d+)\(")

LEAST_ACTIVATION = -127
"""The least byte of an activation (N3, N3w)."""


def prove_tile(unit: DotUnit, product: Product, tokens: int, text: str | None = None, kind: Kind = "tile") -> Result:
    """Whether the tile function for so many tokens computes N4. text: another text of the function (a mutant); kind:
    "pair" for the one of two row groups."""
    module = Module("")
    notes = notes_function(module, unit, product, tokens)
    name = pair_function(module, unit, product) if kind == "pair" else tile_function(module, unit, product, tokens)
    return _Claim(product, tokens, functions(text or module.text()), (notes, name), _GROUPS[kind]).prove()


def tiles_in(text: str) -> list[tuple[Product, int, Kind]]:
    """The quantised tile functions of a step's text, by their names, each with its number of tokens."""
    found: list[tuple[Product, int, Kind]] = []
    for kind, *match in sorted(set(_TILE.findall(text))):
        dtype, x_dtype = DType[match[0].upper()], DType[match[2].upper()]
        if dtype in QUANTISED_WEIGHTS:
            found.append((Product(dtype, ROW_GROUP, int(match[1]), x_dtype, int(match[3])), int(match[4]), kind))
    return found


def tile_names(text: str) -> set[str]:
    """The functions that claims about `tiles_in` are of: tiles, and those that take notes for them."""
    quantised = (match for match in _TILE.finditer(text) if DType[match[2].upper()] in QUANTISED_WEIGHTS)
    names = {match[0].partition("@")[2].rstrip("(") for match in quantised}
    return names | {re.sub("^(tile|pair)", "notes", name) for name in names}


@dataclass(frozen=True, slots=True)
class Activations:
    """Where the arrays of a Q8A or Q8W tensor [capacity, K] begin, as isa/formats.py orders them."""

    capacity: int
    width: int

    @property
    def starts(self) -> dict[str, int]:
        """Byte offset of each array, in order, and of the end."""
        rows, side = self.capacity * self.width, self.capacity * (self.width // QUANT_BLOCK) * 4
        return {"lo": 0, "scale": rows, "sum": rows + side, "hi": rows + 2 * side, "wide": 2 * rows + 2 * side,
                "end": 2 * rows + 3 * side}  # fmt: skip

    def array_of(self, offset: Affine) -> str:
        """The array all values of an offset lie in."""
        names = list(self.starts)
        for name, following in itertools.pairwise(names):
            if self.starts[name] <= offset.low and offset.high < self.starts[following]:
                return name
        raise NotProvedError(Result(Status.REFUTED, f"x[{offset}]"), "an activation in no single array")


class TileWorld:
    """Packed weights and the activations of a tile."""

    variable_range = (0, 0)
    has_data = True

    def __init__(self, product: Product) -> None:
        self.x = Activations(product.capacity, product.width)
        self.is_wide = product.x_dtype is DType.Q8W
        self._quants: dict[tuple[str, Affine], list[Lane]] = {}

    def leaf(self, machine: Machine, pointer: Pointer, kind: str) -> Scalar:
        """Weights are any bytes; of x, see the page's head."""
        if kind == "i8":
            low = LEAST_ACTIVATION if pointer.object == "x" else -128
            return lanes.byte(machine.named_leaf(pointer, kind), low)
        if kind != "i32":
            return machine.named_leaf(pointer, kind)
        array = self.x.array_of(pointer.offset)
        if array == "sum":
            return self.sum(machine, pointer.offset - self.x.starts["sum"])
        if array == "wide":
            return Lane(self.wide(machine, pointer.offset - self.x.starts["wide"]), 0, 1)
        word = machine.named_leaf(pointer, kind)
        parts = [lanes.byte(machine.named_leaf(pointer.at(i), "i8"), LEAST_ACTIVATION) for i in range(4)]
        return Lane(word, -(1 << 31), (1 << 31) - 1, parts=tuple(parts))

    def access(self, machine: Machine, pointer: Pointer, size: int, is_write: bool) -> None:
        """Where it looks is the matter of `bounds.py`."""

    def enter(self, machine: Machine, name: str, arguments: object) -> bool:
        """Every function is executed."""
        return False

    def quants(self, machine: Machine, array: str, side: Affine) -> list[Lane]:
        """The 32 bytes of a block in `lo` or `hi`. side: its offset in the arrays of one word a block."""
        if (array, side) not in self._quants:
            made = [lanes.byte(byte, LEAST_ACTIVATION) for byte in self.bytes(machine, array, side)]
            self._quants[array, side] = made
        return self._quants[array, side]

    def bytes(self, machine: Machine, array: str, side: Affine) -> list[Term]:
        """The same as terms of 8 bits."""
        start = Pointer("x", side * (QUANT_BLOCK // 4) + self.x.starts[array])
        return [machine.named_leaf(start.at(k), "i8") for k in range(QUANT_BLOCK)]

    def flag(self, machine: Machine, side: Affine) -> Term:
        """Whether a block is wide, one bit."""
        return machine.named_leaf(Pointer("x", side + self.x.starts["wide"]), "i1")

    def wide(self, machine: Machine, side: Affine) -> Term:
        """The word that says it."""
        return z3.ZeroExt(31, self.flag(machine, side))

    def sum(self, machine: Machine, side: Affine) -> Lane:
        """What N3 or N3w say the sum of a block is."""
        total = lanes.total_of(self.quants(machine, "lo", side))
        if not self.is_wide:
            return total
        high = lanes.total_of(self.quants(machine, "hi", side)).term * 128
        term = total.term + z3.If(self.wide(machine, side) == 1, high, 0)
        return Lane(term, -QUANT_BLOCK * 16383, QUANT_BLOCK * 16383)


class _Claim:
    """The claim about one tile function, executed at birth. groups: where its row groups are."""

    def __init__(
        self, product: Product, tokens: int, module: Mapping[str, FunctionText], names: tuple[str, str],
        groups: Sequence[str],
    ) -> None:  # fmt: skip
        self.product = product
        self.tokens = tokens
        self.groups = groups
        self.world = TileWorld(product)
        self.machine = Machine(module, self.world)
        self._weights: dict[tuple[str, int, Affine], list[Term]] = {}
        self.token = of(self.machine.symbol("token", 0, product.capacity - tokens))
        x, notes, sums = (Pointer(name, Affine()) for name in ("x", "notes", "sums"))
        weights = [Pointer(name, Affine()) for name in groups]
        ahead = weights * 2 if len(weights) == 1 else []
        self.machine.run(names[0], x, self.token, notes)
        self.machine.run(names[1], *weights, *ahead, x, self.token, notes, sums)

    def prove(self) -> Result:
        """Every row of every group, for every token."""
        every = itertools.product(self.groups, range(self.tokens), range(ROW_GROUP))
        return all_of(self._located(*element) for element in every)

    def _located(self, group: str, place: int, row: int) -> Result:
        result = self._element(group, place, row)
        wrong = result.status is not Status.PROVED
        return Result(result.status, f"{group}, token {place}, row {row}: {result.detail}") if wrong else result

    def _element(self, group: str, place: int, row: int) -> Result:
        line = self.groups.index(group) * self.tokens + place
        stored = self._stored((line * ROW_GROUP + row) * 4)
        for loop in self.machine.loops:
            for slot, value in loop.end_values.items():
                for lane, end in enumerate(value.lanes if isinstance(value, Vector) else ()):
                    if end is stored:
                        return self._induction(loop, slot, lane, group, place, row)
        return Result(Status.REFUTED, "what is stored is not what the loop over blocks leaves")

    def _stored(self, offset: int) -> Term:
        for start, cell in self.machine.memory["sums"].items():
            lane = (offset - start.constant) // 4
            if isinstance(cell.value, Vector) and 0 <= lane < len(cell.value):
                return cell.value[lane]
        raise NotProvedError(Result(Status.REFUTED, f"sums[{offset}]"), "nothing is stored at")

    def _induction(self, loop: Loop, slot: str, lane: int, group: str, place: int, row: int) -> Result:
        before, start, after = (_lane(values[slot], lane) for values in (loop.before, loop.start, loop.after))
        if not loop.covers(self.product.width // QUANT_BLOCK, 1):
            return Result(Status.REFUTED, f"the loop runs over blocks {loop.index} of {loop.begin}..{loop.end}")
        first = decide(before == f32(0.0))
        side = (self.token + place) * (self.product.width // QUANT_BLOCK * 4) + loop.index * 4
        wanted = self._expected(start, loop.index, side, group, row)
        flags = (0, 1) if self.world.is_wide else (0,)
        return all_of([first, *(self._same(after, wanted, side, flag) for flag in flags)])

    def _same(self, made: Term, wanted: Term, side: Affine, flag: int) -> Result:
        """Whether two terms are equal where the block is narrow (0) or wide (1)."""
        known = [(self.world.flag(self.machine, side), z3.BitVecVal(flag, 1))]
        if not flag:
            known += [(byte, z3.BitVecVal(0, 8)) for byte in self.world.bytes(self.machine, "hi", side)]
        return same(z3.substitute(made, *known), z3.substitute(wanted, *known), LEAST_ACTIVATION)

    def _expected(self, acc: Term, block: Affine, side: Affine, group: str, row: int) -> Term:
        """N4 for one block. acc: so far; side: offset of the block in the arrays of one word a block."""
        machine, dtype = self.machine, self.product.dtype
        weights = Pointer(group, block * group_block_bytes(dtype))
        if (group, row, block) not in self._weights:
            self._weights[group, row, block] = [self._weight(weights, row, k) for k in range(QUANT_BLOCK)]
        q = self._weights[group, row, block]
        whole = _dot(q, self.world.quants(machine, "lo", side))
        if self.world.is_wide:
            high = _dot(q, self.world.quants(machine, "hi", side)) * 128
            whole = whole + z3.If(self.world.wide(machine, side) == 1, high, 0)
        scale = machine.named_leaf(Pointer("x", side + self.world.x.starts["scale"]), "float")
        scales = weights.at(512 if dtype is DType.Q8_0 else 256).at(2 * row)
        d = call("fpext", machine.named_leaf(scales, "half"))
        acc = call("fma", call("sitofp", whole), call("fmul", d, scale), acc)
        if dtype is DType.Q4_1:
            m = call("fpext", machine.named_leaf(scales.at(32), "half"))
            total = self.world.sum(machine, side).term
            acc = call("fma", m, call("fmul", scale, call("sitofp", total)), acc)
        return acc

    def _weight(self, block: Pointer, row: int, k: int) -> Term:
        """q of isa/formats.py at row and column of a block, 32 bits; less 8 for Q4_0."""
        if self.product.dtype is DType.Q8_0:
            j, i = divmod(k, 4)
            return z3.SignExt(24, self.machine.named_leaf(block.at(64 * j + 4 * row + i), "i8"))
        j, i = divmod(k % 16, 4)
        packed = self.machine.named_leaf(block.at(64 * j + 4 * row + i), "i8")
        q = z3.ZeroExt(28, z3.Extract(7, 4, packed) if k >= 16 else z3.Extract(3, 0, packed))
        return q - 8 if self.product.dtype is DType.Q4_0 else q


def _dot(q: Sequence[Term], x: Sequence[Lane]) -> Term:
    total = z3.BitVecVal(0, 32)
    for weight, lane in zip(q, x, strict=True):
        total = total + weight * lane.term
    return total


def _lane(value: Value, lane: int) -> Term:
    if not isinstance(value, Vector) or isinstance(value[lane], Opaque):
        raise KernelTextError("a lane without a value is summed")
    return value[lane]
