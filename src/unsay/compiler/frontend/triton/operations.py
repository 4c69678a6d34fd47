"""The table of operations of Triton IR that are raised, by name."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unsay.compiler.frontend.triton import access, integers, loops
from unsay.compiler.frontend.triton.affine import Affine, Symbol, axis
from unsay.compiler.frontend.triton.folds import REDUCTIONS, reduce
from unsay.compiler.frontend.triton.kernel import Handler, Kernel, dtype_of
from unsay.compiler.frontend.triton.text import Dense, Op, Value
from unsay.compiler.frontend.triton.tiles import Data, RefusalError, Splat, Tile
from unsay.compiler.frontend.triton.values import (
    Abstract,
    Accumulated,
    Carried,
    Dot,
    Index,
    Mask,
    Pointer,
    moved,
    rename,
)
from unsay.compiler.ir.types import FLOATS
from unsay.isa.formats import DType


def _constant(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    given, kind = op.attributes.get("value"), dtype_of(op.results[0].type)
    number = given.value if isinstance(given, Dense) else given
    if not isinstance(number, int | float):
        raise RefusalError("a constant that is not one number in every element")
    if kind is DType.BOOL:
        return Mask(() if number else (Affine(-1),))
    return Splat(float(number), kind) if kind in FLOATS else Index(Affine(int(number)))


def _same(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """A scalar everywhere, or an axis of one element repeated: neither depends on the new positions."""
    return operands[0]


def _expand_dims(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    position = op.integer("axis")
    return rename(_settled(kernel, op, operands[0]), moved(lambda index: index + (index >= position)))


def _trans(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    order = op.integers("order")
    if sorted(order) != list(range(len(op.operands[0].type.shape))):
        raise RefusalError(f"order {order} of {op.operands[0].type}")
    return rename(_settled(kernel, op, operands[0]), moved(order.index))


def _reshape(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """Axes of one element come and go"""
    before, after = op.operands[0].type.shape, op.results[0].type.shape
    old = [index for index, size in enumerate(before) if size > 1]
    new = [index for index, size in enumerate(after) if size > 1]
    if [before[index] for index in old] != [after[index] for index in new]:
        raise RefusalError(f"{before} as {after}: only axes of one element may come and go")
    places = dict(zip(old, new, strict=True))
    return rename(_settled(kernel, op, operands[0]), moved(lambda index: places.get(index, index)))


def _settled(kernel: Kernel, op: Op, value: Abstract) -> Abstract:
    """Something whose axes can be renamed."""
    if isinstance(value, Carried | Accumulated):
        raise RefusalError("reads what the loop carries, other than to accumulate into it")
    return kernel.data(value, value.dtype) if isinstance(value, Dot) else value


def _add_pointer(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    pointer, offset = operands
    if not isinstance(pointer, Pointer) or not isinstance(offset, Index):
        raise RefusalError("an address computed from data")
    return replace(pointer, offset=pointer.offset + offset.value, below=(*pointer.below, *offset.below))


_ORDERED = {1: "equal", 2: "greater", 3: "greater_equal", 4: "less", 5: "less_equal"}
_UNORDERED = {8: "equal", 9: "greater", 10: "greater_equal", 11: "less", 12: "less_equal"}
_OPPOSITE = {
    "equal": "equal",
    "greater": "less_equal",
    "greater_equal": "less",
    "less": "greater_equal",
    "less_equal": "greater",
}


def _compare_floats(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """Unordered ones are the opposite of the ordered opposite: true for NaN."""
    predicate = op.integer("predicate")
    if predicate in _ORDERED:
        return kernel.apply(_ORDERED[predicate], op, operands)
    if predicate == 13:
        return kernel.tiles.apply("not", integers.as_data(kernel.apply("equal", op, operands)))
    if predicate in _UNORDERED and predicate != 8:
        return kernel.tiles.apply("not", integers.as_data(kernel.apply(_OPPOSITE[_UNORDERED[predicate]], op, operands)))
    raise RefusalError(f"a comparison of floats with predicate {predicate}")


def _cast(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """Index arithmetic keeps its value in any integer type; data is converted."""
    (x,), wanted = operands, dtype_of(op.results[0].type)
    if isinstance(x, Index) and wanted not in FLOATS and wanted is not DType.BOOL:
        return integers.checked(op, x.value, x)
    return kernel.tiles.cast(kernel.all_data(op, operands)[0], wanted)


def _scaled(kind: str, before: float, after: float) -> Handler:
    """after * kind(before * x): exp2(x) is exp(x * ln 2), log2(x) is ln(x) / ln 2."""

    def handle(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
        (x,) = kernel.all_data(op, operands)
        y = kernel.tiles.apply(kind, _times(kernel, x, before))
        return _times(kernel, y, after)

    return handle


def _times(kernel: Kernel, x: Data, factor: float) -> Data:
    return x if factor == 1.0 else kernel.tiles.apply("mul", x, Splat(factor, x.dtype))


def _fma(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    a, b, c = kernel.all_data(op, operands)
    return kernel.tiles.apply("add", kernel.tiles.apply("mul", a, b), c)


def _clamp(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    x, low, high = kernel.all_data(op, operands)
    return kernel.tiles.apply("minimum", kernel.tiles.apply("maximum", x, low), high)


def _ceil(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    (x,) = kernel.all_data(op, operands)
    return kernel.tiles.apply("neg", kernel.tiles.apply("floor", kernel.tiles.apply("neg", x)))


def _library(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """A function of the device's library, by its symbol: __nv_tanhf, __ocml_exp_f32"""
    symbol = str(op.attributes.get("symbol"))
    name = symbol.removeprefix("__nv_").removeprefix("__ocml_").removesuffix("_f32").removesuffix("f")
    if name not in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor"):
        raise RefusalError(f"the library function {symbol[:60]!r}")
    return kernel.apply(name, op, operands)


def _dot(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """tt.dot(a, b, c): rows of a and columns of b stay axes 0 and 1; the summed axis becomes a symbol of its own."""
    dtype = dtype_of(op.results[0].type)
    if len(op.results[0].type.shape) != 2:
        raise RefusalError("a product of tiles that are not matrices")
    a, b = (_whole(kernel, value, operand) for value, operand in zip(operands[:2], op.operands, strict=False))
    summed = Symbol("sum", kernel.new_index(), op.operands[0].type.shape[1])
    product = Dot(a.rename(_exchange(1, summed)), b.rename(_exchange(0, summed)), summed, dtype)
    onto = operands[2]
    if isinstance(onto, Carried | Accumulated):
        return kernel.accumulate(onto, "add", product, dtype)
    if isinstance(onto, Splat) and onto.number == 0:
        return product
    return kernel.tiles.apply("add", kernel.data(onto, dtype), kernel.data(product, dtype))


def _exchange(position: int, summed: Symbol) -> Callable[[Symbol], Symbol]:
    return lambda symbol: summed if symbol.kind == "axis" and symbol.index == position else symbol


def _whole(kernel: Kernel, value: Abstract, operand: Value) -> Tile:
    made = kernel.data(value, dtype_of(operand.type))
    return Tile(kernel.tiles.constant(made.number, made.dtype), (), ()) if isinstance(made, Splat) else made


_COMBINES = {
    "arith.addf": "add", "arith.addi": "add", "arith.maximumf": "maximum", "arith.maxnumf": "maximum",
    "arith.maxsi": "maximum", "arith.minimumf": "minimum", "arith.minnumf": "minimum", "arith.minsi": "minimum",
}  # fmt: skip


def _reduce(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """tt.reduce over one axis; the axes after it move up"""
    if len(operands) != 1 or len(op.blocks) != 1:
        raise RefusalError("a reduction of several tiles at once")
    names = [inner.name for inner in op.blocks[0].ops if inner.name != "tt.reduce.return"]
    combine = _COMBINES.get(names[0]) if len(names) == 1 else None
    if combine is None:
        raise RefusalError(f"a reduction by {', '.join(names)}; sums, maxima and minima are raised")
    position, shape = op.integer("axis"), op.operands[0].type.shape
    if not 0 <= position < len(shape):
        raise RefusalError(f"axis {position} of {op.operands[0].type}")
    (tile,) = kernel.all_data(op, operands)
    reduced = reduce(kernel.tiles, tile, axis(position, shape[position]), REDUCTIONS[combine])
    return rename(reduced, moved(lambda index: index - (index > position)))


def _nothing(kernel: Kernel, op: Op, operands: list[Abstract]) -> tuple[Abstract, ...]:
    """A hint to the compiler."""
    return ()


def _elementwise(kind: str) -> Handler:
    return lambda kernel, op, operands: kernel.apply(kind, op, operands)


_CASTS = (
    "arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.extsi", "arith.extui",
    "arith.trunci", "arith.index_cast",
)  # fmt: skip

OPERATIONS: dict[str, Handler] = {
    "arith.constant": _constant,
    "tt.get_program_id": integers.program_id,
    "tt.get_num_programs": integers.num_programs,
    "tt.make_range": integers.make_range,
    "tt.splat": _same,
    "tt.broadcast": _same,
    "tt.expand_dims": _expand_dims,
    "tt.trans": _trans,
    "tt.reshape": _reshape,
    "tt.addptr": _add_pointer,
    "tt.load": access.load,
    "tt.store": access.store,
    "tt.dot": _dot,
    "tt.reduce": _reduce,
    "tt.call": loops.call,
    "tt.fp_to_fp": _cast,
    "tt.clampf": _clamp,
    "tt.extern_elementwise": _library,
    "scf.for": loops.loop,
    "scf.if": loops.branch,
    "llvm.intr.assume": _nothing,
    "arith.addi": integers.add,
    "arith.subi": integers.subtract,
    "arith.muli": integers.multiply,
    "arith.divsi": integers.divide,
    "arith.divui": integers.divide,
    "arith.remsi": integers.remainder,
    "arith.remui": integers.remainder,
    "arith.minsi": integers.extreme("minimum", np.minimum),
    "arith.maxsi": integers.extreme("maximum", np.maximum),
    "arith.cmpi": integers.compare,
    "arith.cmpf": _compare_floats,
    "arith.andi": integers.conjunction,
    "arith.ori": integers.disjunction,
    "arith.xori": integers.exclusive,
    "arith.select": access.select,
    "math.exp2": _scaled("exp", math.log(2), 1.0),
    "math.log2": _scaled("log", 1.0, 1 / math.log(2)),
    "math.fma": _fma,
    "math.ceil": _ceil,
    **dict.fromkeys(_CASTS, _cast),
    **{
        name: _elementwise(kind)
        for name, kind in (
            ("arith.addf", "add"), ("arith.subf", "sub"), ("arith.mulf", "mul"), ("arith.divf", "div"),
            ("arith.negf", "neg"), ("arith.maximumf", "maximum"), ("arith.maxnumf", "maximum"),
            ("arith.minimumf", "minimum"), ("arith.minnumf", "minimum"), ("tt.precise_divf", "div"),
            ("tt.precise_sqrt", "sqrt"), ("math.absf", "abs"), ("math.absi", "abs"), ("math.cos", "cos"),
            ("math.erf", "erf"), ("math.exp", "exp"), ("math.floor", "floor"), ("math.log", "log"),
            ("math.rsqrt", "rsqrt"), ("math.sin", "sin"), ("math.sqrt", "sqrt"), ("math.tanh", "tanh"),
        )
    },
}  # fmt: skip
