"""What the rules of the third stage work on: the graph being made, and what the names of the file stand for.

A name of the ONNX file stands for an `Item`: a value of the graph, or a `Known`, an array the importer has in hand (a
constant, or sizes computed from shapes). A Known becomes an operation only where an operation of the graph reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from unsay.compiler.dialect import ops
from unsay.compiler.frontend.onnx.parse import Node, Tensor
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError, Size, extent
from unsay.compiler.frontend.onnx.tensors import MAX_ELEMENTS
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.dims import Extent, Monomial
from unsay.compiler.ir.types import FLOATS, TensorType, dtype_name
from unsay.isa.formats import DType

_MAX_INLINE = 16
"""Elements of a constant written into the graph; more is a weight."""


@dataclass(frozen=True, slots=True)
class Known:
    """An array in hand; of objects where some of its elements are a Size. bf16 is its bit pattern."""

    array: NDArray[Any]
    dtype: DType
    name: str = ""


Item: TypeAlias = Value | Known


class Builder:
    """The graph, the weights and what every name of the file stands for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.weights: dict[str, NDArray[Any]] = {}
        self.items: dict[str, Item] = {}
        self._lifted: dict[int, tuple[Known, Value]] = {}
        self._scalars: dict[tuple[object, DType], Value] = {}
        self._base = "v"
        self._made: list[Value] = []

    def begin(self, node: Node) -> None:
        """Values made from here on are named after this node's first output."""
        self._base = spell(node.outputs[0] if node.outputs else node.kind)
        self._made.clear()

    def end(self, made: Item) -> None:
        """The node's first output gets the plain name, not what was made on the way to it."""
        if made in self._made[1:]:
            first = self._made[0]
            assert isinstance(made, Value), made
            first.name, made.name = made.name, first.name

    def emit(self, kind: str, *operands: Value, **attributes: AttributeValue) -> Value:
        """Add an operation of one result; raises IrError where the operands do not fit."""
        return self._keep(ops.emit(self.graph, kind, *operands, name=self._base, before=None, **attributes))

    def declare(self, kind: str, *operands: Value, type: TensorType, **attributes: AttributeValue) -> Value:
        """Add an operation whose result is declared."""
        return self._keep(
            ops.declare(self.graph, kind, *operands, name=self._base, type=type, before=None, **attributes)
        )

    def _keep(self, made: Value) -> Value:
        """No tensor is larger than one of a file may be."""
        count = prod(extent for extent in made.type.dims if isinstance(extent, int))
        if count > MAX_ELEMENTS:
            raise RefusalError(f"a result of {count:.3g} elements; 2^40 are the most")
        self._made.append(made)
        return made

    def number(self, value: float, like: Value) -> Value:
        """A scalar of the element type of another value."""
        dtype = like.type.dtype
        if value != value or (dtype not in FLOATS and math.isinf(value)):
            raise RefusalError(f"a parameter that is {value}, of {dtype_name(dtype)}")
        made = float(value) if dtype in FLOATS else int(value)
        kind = TensorType((), dtype)
        return self._once((repr(made), dtype), lambda: self.declare("constant", type=kind, value=(made,)))

    def reshape(self, x: Value, sizes: Sequence[AnySize]) -> Value:
        """x in another shape; x itself if it has that shape."""
        wanted = self.extents(sizes)
        return x if x.type.dims == wanted else self.declare("reshape", x, type=TensorType(wanted, x.type.dtype))

    def broadcast(self, x: Value, sizes: Sequence[AnySize]) -> Value:
        """x repeated to a shape."""
        wanted = self.extents(sizes)
        return x if x.type.dims == wanted else self.declare("broadcast_to", x, type=TensorType(wanted, x.type.dtype))

    def extents(self, sizes: Sequence[AnySize]) -> tuple[Extent, ...]:
        """Sizes as dimensions of a type; the graph gets those it lacks."""
        return tuple(extent(wanted, self.graph) for wanted in sizes)

    def has(self, *sizes: AnySize) -> None:
        """Make sure the graph has dimensions of these sizes, so that shape rules find them."""
        self.extents(sizes)

    def cast(self, x: Value, dtype: DType) -> Value:
        """x in another element type."""
        return x if x.type.dtype is dtype else self.emit("cast", x, dtype=dtype_name(dtype))

    def iota(self, sizes: Sequence[AnySize], axis: int, dtype: DType = DType.I64) -> Value:
        """0, 1, 2 ... along an axis."""
        return self.declare("iota", type=TensorType(self.extents(sizes), dtype), axis=axis)

    def size(self, wanted: AnySize) -> Value:
        """A size as a number of the graph: i64."""
        return self._once((wanted, DType.I64), lambda: self._lift_size(wanted))

    def _once(self, key: tuple[object, DType], make: Callable[[], Value]) -> Value:
        """Scalars are made once; the graph only grows while a model is imported."""
        if key not in self._scalars:
            self._scalars[key] = make()
        return self._scalars[key]

    def lift(self, item: Item) -> Value:
        """The item as a value of the graph; the same Known is lifted once."""
        if isinstance(item, Value):
            return item
        found = self._lifted.get(id(item))
        if found is None:
            found = self._lifted[id(item)] = item, self._lift(item)
        return found[1]

    def _lift(self, known: Known) -> Value:
        array = known.array
        if array.dtype == object:
            return self._lift_sizes(known)
        if array.size == 0:
            raise RefusalError(f"a tensor of no elements, {list(array.shape)}")
        kind = TensorType(array.shape, known.dtype)
        named = bool(known.name) and known.dtype in FLOATS and array.ndim > 0
        if not named and array.size <= _MAX_INLINE and known.dtype is not DType.BF16:
            value = tuple(array.ravel().tolist())
            if known.dtype not in FLOATS:
                return self._constant(known, kind, tuple(map(int, value)))
            if not any(number != number for number in value):
                return self._constant(known, kind, value)
        name = self._weight_name(known.name or self._base)
        self.weights[name] = array
        return ops.declare(self.graph, "weight", name=spell(name), type=kind, tensor=name)

    def _constant(self, known: Known, kind: TensorType, value: tuple[Any, ...]) -> Value:
        name = spell(known.name) if known.name else self._base
        return ops.declare(self.graph, "constant", name=name, type=kind, value=value)

    def _lift_sizes(self, known: Known) -> Value:
        """Sizes as numbers of the graph: sums and products of `size`, one element at a time."""
        if known.array.size > _MAX_INLINE:
            raise RefusalError(f"{known.array.size} sizes as data")
        parts = [self.size(element) for element in known.array.ravel().tolist()]
        if known.array.ndim == 0:
            return self.cast(parts[0], known.dtype)
        whole = self.emit("concat", *(self.reshape(part, [1]) for part in parts), axis=0)
        return self.cast(self.reshape(whole, known.array.shape), known.dtype)

    def _lift_size(self, element: AnySize) -> Value:
        if not isinstance(element, Size):
            return self.declare("constant", type=TensorType((), DType.I64), value=(int(element),))
        terms = [self._lift_term(monomial, coefficient) for monomial, coefficient in element.formula.terms]
        return reduce(lambda total, term: self.emit("add", total, term), terms)

    def _lift_term(self, monomial: Monomial, coefficient: int) -> Value:
        factors = [self.emit("size", dim=dim.name) for dim in monomial]
        if coefficient != 1 or not factors:
            factors.append(self.size(coefficient))
        return reduce(lambda product, factor: self.emit("mul", product, factor), factors)

    def _weight_name(self, name: str) -> str:
        candidate, suffix = name, 0
        while candidate in self.weights:
            suffix += 1
            candidate = f"{name}.{suffix}"
        return candidate


def spell(name: str) -> str:
    """A name of the file as a name of LLMIR."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name)[:80] or "v"


def number_of(item: Item) -> float | None:
    """The number an item in hand is, None if it is none, or not one."""
    if not isinstance(item, Known) or item.array.size != 1 or item.dtype is DType.BF16:
        return None
    element = item.array.item()
    return None if isinstance(element, Size) else float(element)


def known(tensor: Tensor, name: str) -> Known:
    """A constant of the file."""
    return Known(tensor.array, tensor.dtype, name)


def known_sizes(sizes: Sequence[AnySize]) -> Known:
    """A list of sizes."""
    symbolic = any(isinstance(element, Size) for element in sizes)
    return Known(np.array(sizes, object if symbolic else np.int64), DType.I64)
