"""The arena of a graph: which activation has which bytes of GLOBAL memory.

Three kinds of results have no bytes of their own: an operation that works in place takes over its operand's, selected
rows are read where they are, and q, k, v of a qkv lie side by side in the columns of one tensor. The logits go to
TEMPORAL memory, offset 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.types import DTYPES, Dim
from unsay.compiler.lower.memory import Buffer, Tensor, place
from unsay.isa.formats import DType, activation_bytes, padded_rows
from unsay.isa.opcodes import Region

_DIM_FLAGS = {"T": "DIM_TOKENS", "R": "DIM_ROWS"}
_NO_MEMORY = frozenset({"weight", "tokens", "output"})


@dataclass(frozen=True, slots=True)
class _Place:
    """A buffer seen as rows of `columns` elements, and where in a row the value begins."""

    buffer: Buffer
    columns: int
    column: int = 0


class Arena:
    """Plans the whole graph at birth; then says where each value is."""

    def __init__(self, graph: Graph) -> None:
        self._places: dict[Value, _Place] = {}
        self._hidden: dict[Operation, Buffer] = {}
        buffers: list[Buffer] = []
        for index, operation in enumerate(graph.operations):
            self._read(operation, index)
            if operation.kind not in _NO_MEMORY and not _makes_logits(operation):
                buffers.extend(self._make(operation, index))
        self.num_bytes = place(buffers)

    def tensor(self, value: Value) -> Tensor:
        """The tensor that holds an activation, for q, k, v of a qkv all three."""
        dim = value.type.dims[0]
        assert isinstance(dim, Dim), value
        flags = (_DIM_FLAGS[dim.name],)
        if _makes_logits(value.producer):
            vocab = value.type.dims[1]
            assert isinstance(vocab, int), value
            return Tensor(Region.TEMPORAL, DType.F32, (dim.high, padded_rows(vocab)), 0, flags)
        where = self._places[value]
        return Tensor(Region.GLOBAL, value.type.dtype, (dim.high, where.columns), where.buffer.offset, flags)

    def column(self, value: Value) -> int:
        """Column of the tensor where the value begins."""
        return self._places[value].column

    def hidden_offset(self, operation: Operation) -> int:
        """GLOBAL offset of the intermediate of an ffn."""
        return self._hidden[operation].offset

    def _read(self, operation: Operation, index: int) -> None:
        for operand in operation.operands:
            if operand in self._places:
                self._places[operand].buffer.last = index

    def _make(self, operation: Operation, index: int) -> list[Buffer]:
        if operation.kind == "ffn":
            self._hidden[operation] = _hidden(operation, index)
        shared = 0 if operation.kind == "select_rows" else BY_NAME[operation.kind].in_place
        if shared is not None:
            self._places[operation.result] = self._places[operation.operands[shared]]
        else:
            self._new_buffer(operation, index)
        mine = [] if shared is not None else [self._places[operation.results[0]].buffer]
        return mine + ([self._hidden[operation]] if operation.kind == "ffn" else [])

    def _new_buffer(self, operation: Operation, index: int) -> None:
        widths = [_width(value) for value in operation.results]
        first = operation.results[0].type
        buffer = Buffer(_num_bytes(first.dtype, first.dims[0], sum(widths)), index, index)
        for position, value in enumerate(operation.results):
            self._places[value] = _Place(buffer, sum(widths), sum(widths[:position]))


def is_selected(value: Value) -> bool:
    """Whether the value is rows selected from a tensor, which are read in place."""
    return value.producer.kind == "select_rows"


def _makes_logits(operation: Operation) -> bool:
    return any(user.kind == "output" for value in operation.results for user in value.uses)


def _hidden(ffn: Operation, index: int) -> Buffer:
    _, x, gate, *_ = ffn.operands
    return Buffer(_num_bytes(DTYPES[ffn.string("hidden")], x.type.dims[0], gate.type.dims[0]), index, index)


def _num_bytes(dtype: DType, rows: object, columns: object) -> int:
    assert isinstance(rows, Dim) and isinstance(columns, int), (rows, columns)
    return activation_bytes(dtype, rows.high, columns)


def _width(value: Value) -> int:
    width = value.type.dims[-1]
    assert isinstance(width, int), value
    return width
