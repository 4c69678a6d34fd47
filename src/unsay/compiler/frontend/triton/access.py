"""Loads, stores and selections of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsay.compiler.frontend.triton import memory
from unsay.compiler.frontend.triton.affine import Affine
from unsay.compiler.frontend.triton.edges import Edge
from unsay.compiler.frontend.triton.kernel import Kernel, dtype_of
from unsay.compiler.frontend.triton.text import Op
from unsay.compiler.frontend.triton.tiles import Data, RefusalError, Splat, Tile, hints_of
from unsay.compiler.frontend.triton.values import Abstract, Index, Mask, Pointer
from unsay.isa.formats import DType


def load(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """tt.load(pointer, mask?, other?)"""
    pointer, mask, other = _split(operands)
    if pointer.parameter in kernel.stored:
        raise RefusalError(f"loads from parameter {pointer.parameter} after storing to it")
    tensor = kernel.tensor(pointer.parameter)
    terms = mask.terms if isinstance(mask, Mask) else ()
    number = _number(other) if isinstance(mask, Mask) else None
    tile, left = memory.load(kernel.tiles, tensor, pointer, terms, kernel.guards, number)
    kernel.reads.setdefault(pointer.parameter, set()).add(pointer.offset)
    condition = Mask(tuple(left)) if isinstance(mask, Mask) else mask
    if condition is None or condition == Mask(()) or other is None:
        return tile
    return _select(kernel, condition, tile, kernel.data(other, tile.dtype, hints_of(tile)))


def store(kernel: Kernel, op: Op, operands: list[Abstract]) -> tuple[Abstract, ...]:
    """tt.store(pointer, value, mask?)"""
    pointer, value, mask = _split(operands)
    parameter = pointer.parameter
    if not isinstance(mask, Mask | None) or value is None:
        raise RefusalError("stores under a mask computed from data")
    if parameter in kernel.stored:
        raise RefusalError(f"stores to parameter {parameter} more than once")
    _check_in_place(kernel, pointer)
    kernel.programs.check_each_once(pointer.offset.symbols)
    terms = [*(mask.terms if mask else ()), *kernel.guards]
    data = kernel.data(value, dtype_of(op.operands[1].type))
    kernel.stored[parameter] = memory.store(kernel.tiles, kernel.tensor(parameter), pointer, terms, data)
    return ()


def _check_in_place(kernel: Kernel, pointer: Pointer) -> None:
    """What is loaded from the parameter is what this program and iteration alone will overwrite."""
    loaded = kernel.reads.get(pointer.parameter)
    if loaded is None:
        return
    symbols = pointer.offset.symbols
    if loaded != {pointer.offset} or not kernel.programs.are_told_apart(symbols):
        raise RefusalError(f"stores to parameter {pointer.parameter} what other programs may be loading")
    if not set(kernel.iterations) <= set(symbols):
        raise RefusalError(f"stores to parameter {pointer.parameter} what the next iteration loads")


def _split(operands: Sequence[Abstract]) -> tuple[Pointer, Abstract | None, Abstract | None]:
    first, second, third = [*operands, None, None][:3]
    if not isinstance(first, Pointer):
        raise RefusalError("its pointer is not one of the kernel's parameters with an offset")
    return first, second, third


def _number(value: Abstract | None) -> Edge:
    """The one number a value is everywhere, None if it is not."""
    match value:
        case Splat():
            return value.number
        case Index() if value.value.is_constant:
            return value.value.constant
        case Mask():
            return value.known
        case _:
            return None


def select(kernel: Kernel, op: Op, operands: list[Abstract]) -> Abstract:
    """arith.select(condition, a, b)"""
    condition, a, b = operands
    if isinstance(condition, Mask) and condition.known is not None:
        return a if condition.known else b
    if isinstance(condition, Mask) and isinstance(a, Index) and isinstance(b, Index):
        picked = kernel.programs.compute(_where, a.value, b.value, *condition.terms)
        if picked is not None:
            return Index(picked, (*a.below, *b.below))
    kind, hints = dtype_of(op.results[0].type), hints_of(*operands)
    return _select(kernel, condition, kernel.data(a, kind, hints), kernel.data(b, kind, hints))


def _where(a: object, b: object, *terms: object) -> object:
    return np.where(np.all(np.array(terms) >= 0, axis=0), a, b)  # pyright: ignore


def _select(kernel: Kernel, condition: Abstract, a: Data, b: Data) -> Data:
    """Bounds of a tile's own coordinates say what is outside it; any other condition is data."""
    if isinstance(condition, Mask) and isinstance(a, Splat) and len(condition.terms) == 1:
        condition, a, b = Mask((condition.terms[0] * -1 - Affine(1),)), b, a
    if isinstance(condition, Mask) and isinstance(a, Tile) and isinstance(b, Splat):
        a, left = memory.selected(kernel.tiles, condition.terms, a, b.number)
        if not left:
            return a
        condition = Mask(tuple(left))
    holds = kernel.data(condition, DType.BOOL, hints_of(a, b))
    return kernel.tiles.apply("select", holds, a, b)
