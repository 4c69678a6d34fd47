"""Writes LLMIR for torch programs: types and sizes in our terms, and the few conversions every rule needs.

Nothing here imports torch: dtypes are known by their names, symbolic sizes by the shape of their formulas.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias

from unsay.compiler.dialect.ops import build, declare
from unsay.compiler.ir import dims as formulas
from unsay.compiler.ir.core import AttributeValue, Graph, Value
from unsay.compiler.ir.dims import Dim, Extent, Formula, same
from unsay.compiler.ir.types import FLOATS, TensorType, dtype_name
from unsay.errors import IrError, UnsupportedError
from unsay.isa.formats import DType

DTYPES = {
    "torch.float32": DType.F32, "torch.float16": DType.F16, "torch.bfloat16": DType.BF16, "torch.float64": DType.F64,
    "torch.int64": DType.I64, "torch.int32": DType.I32, "torch.int8": DType.I8, "torch.bool": DType.BOOL,
}  # fmt: skip

Scalar: TypeAlias = int | float | bool

MAX_EXTENT = 1 << 20
"""The range of a dimension for which torch states no upper end."""

_PROMOTION = (DType.BOOL, DType.I8, DType.I32, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64)


class Builder:
    """The graph under construction; `name` is that of the node whose operations are written."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.name = "x"
        self._symbols: dict[str, Dim] = {}

    def emit(self, kind: str, *operands: Value, **attributes: AttributeValue) -> Value:
        """An operation whose type follows from its operands."""
        return build(self.graph, kind, operands, attributes, (self.name,)).result

    def declare(self, kind: str, dims: Sequence[Extent], dtype: DType, *operands: Value, **attributes: Any) -> Value:
        """An operation whose type is stated."""
        return declare(self.graph, kind, *operands, name=self.name, type=TensorType(tuple(dims), dtype), **attributes)

    # sizes

    def add_symbol(self, symbol: str, dim: Dim) -> None:
        """A free dimension, and torch's name of it."""
        self.graph.dims[dim.name] = dim
        self._symbols[symbol] = dim

    def knows(self, symbol: str) -> bool:
        """Whether the symbol has a dimension."""
        return symbol in self._symbols

    def extent(self, size: Any) -> Extent:
        """A size: an int, or a symbolic one, which gets a dimension with a formula if the graph has none yet."""
        if isinstance(size, int):
            return size
        return self.of_formula(self._formula(size.node.expr))

    def extents(self, sizes: Iterable[Any]) -> tuple[Extent, ...]:
        """A shape."""
        return tuple(self.extent(size) for size in sizes)

    def tensor_type(self, tensor: Any) -> TensorType:
        """The type of what torch describes as a tensor."""
        dtype = DTYPES.get(str(tensor.dtype))
        if dtype is None:
            raise UnsupportedError(f"a tensor of {tensor.dtype}; supported are {', '.join(DTYPES)}")
        return TensorType(self.extents(tensor.shape), dtype)

    def _formula(self, expression: Any) -> Formula:
        if expression.is_Integer:
            return formulas.number(int(expression))
        if expression.is_Symbol and str(expression) in self._symbols:
            return formulas.of(self._symbols[str(expression)])
        parts = [self._formula(part) for part in expression.args] if expression.is_Add or expression.is_Mul else []
        if expression.is_Pow and expression.args[1].is_Integer and 0 < int(expression.args[1]) < 8:
            parts = [self._formula(expression.args[0])] * int(expression.args[1])
        if not parts:
            raise UnsupportedError(f"a size of {str(expression)[:80]}; supported are sums and products of dimensions")
        total = parts[0]
        for part in parts[1:]:
            total = total + part if expression.is_Add else total * part
        return total

    # values

    def constant(self, value: Scalar, dtype: DType, dims: Sequence[Extent] = ()) -> Value:
        """One number everywhere."""
        number = float(value) if dtype in FLOATS else int(value)
        return self.declare("constant", dims, dtype, value=(number,))

    def scalar(self, value: Any, dtype: DType) -> Value:
        """A number of Python, or a symbolic size, as a tensor of rank 0."""
        if isinstance(value, bool | int | float):
            return self.constant(value, dtype)
        extent = self.extent(value)
        if isinstance(extent, int):
            return self.constant(extent, dtype)
        return self.cast(self.emit("size", dim=extent.name), dtype)

    def operand(self, value: Any, dtype: DType) -> Value:
        """A tensor or a number, in this element type."""
        return self.cast(value, dtype) if isinstance(value, Value) else self.scalar(value, dtype)

    def cast(self, x: Value, dtype: DType) -> Value:
        """x in this element type."""
        return x if x.type.dtype is dtype else self.emit("cast", x, dtype=dtype_name(dtype))

    def reshape(self, x: Value, dims: Sequence[Extent]) -> Value:
        """x in this shape."""
        return x if _alike(x.type.dims, dims) else self.declare("reshape", dims, x.type.dtype, x)

    def broadcast(self, x: Value, dims: Sequence[Extent]) -> Value:
        """x repeated to this shape."""
        return x if _alike(x.type.dims, dims) else self.declare("broadcast_to", dims, x.type.dtype, x)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """The dimensions of x in this order."""
        return x if list(perm) == list(range(len(perm))) else self.emit("transpose", x, perm=tuple(perm))

    def triangle(self, dims: Sequence[Extent], relation: str, diagonal: int) -> Value:
        """bool [rows, columns]: whether column `relation` row + diagonal."""
        row, column = (self.declare("iota", dims, DType.I64, axis=axis) for axis in (0, 1))
        shifted = row if diagonal == 0 else self.emit("add", row, self.constant(diagonal, DType.I64))
        return self.emit(relation, column, shifted)

    def product(self, extents: Iterable[Extent]) -> Extent:
        """The extent that is the product of some; declared if the graph has none."""
        total = formulas.number(1)
        for extent in extents:
            total *= formulas.of(extent)
        return self.of_formula(total)

    def sum(self, extents: Iterable[Extent]) -> Extent:
        """The extent that is the sum of some; declared if the graph has none."""
        total = formulas.number(0)
        for extent in extents:
            total += formulas.of(extent)
        return self.of_formula(total)

    def of_formula(self, wanted: Formula) -> Extent:
        """The extent of a formula; declared if the graph has none."""
        try:
            return formulas.extent_of(wanted, self.graph.dims)
        except IrError:
            name = next(name for n in range(1 << 20) if (name := f"N{n}") not in self.graph.dims)
            self.graph.dims[name] = Dim(name, *_range(wanted), wanted)
            return self.graph.dims[name]


def common_dtype(values: Iterable[Any]) -> DType:
    """What operands of several element types are compared in: tensors decide, and a float makes integers f32."""
    items = list(values)
    of_tensors = [value.type.dtype for value in items if isinstance(value, Value)]
    dtype = max(of_tensors, key=_PROMOTION.index)
    if any(isinstance(value, float) for value in items) and dtype not in FLOATS:
        return DType.F32
    if {DType.F16, DType.BF16} <= set(of_tensors):
        return DType.F32
    return dtype


def _alike(given: Sequence[Extent], wanted: Sequence[Extent]) -> bool:
    return len(given) == len(wanted) and all(map(same, given, wanted))


def _range(wanted: Formula) -> tuple[int, int]:
    """The least and the greatest a formula can come to, monomial by monomial."""
    low = high = 0
    for monomial, coefficient in wanted.terms:
        ends = (coefficient * prod(dim.low for dim in monomial), coefficient * prod(dim.high for dim in monomial))
        low, high = low + min(ends), high + max(ends)
    return max(low, 0), high
