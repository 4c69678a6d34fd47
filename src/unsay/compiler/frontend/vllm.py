"""A model in vLLM's calling protocol: everything a step depends on is an argument, the cache too.

    forward(input_ids, positions, block_table, kv_cache.0 ..) -> logits, kv_cache.0 ..

    input_ids    [T] i32           tokens of this call, of one sequence
    positions    [T] i64           where each stands in the sequence
    block_table  [M] i32           the blocks that hold the sequence, in order; position p is in block_table[p // P]
    kv_cache.l   [2, N, P, K, D]   of layer l: keys (rotated) and values; N blocks of P tokens each
    logits       [T, V] f32        after each token

The step graph of an architecture leaves positions and cache to the machine. Here they become values: `rope` looks its
angles up by position, `attention` writes the new keys and values into their slots and reads the slots of the sequence.
Nothing is changed in place: the caches that come back are the caches to go on with. docs/protocols.md has the mapping.
Source: vLLM, "Paged Attention" and the KV cache shape of its FlashAttention back end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unsay.compiler.dialect.ops import build, declare, emit
from unsay.compiler.frontend.imported import Imported
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.dims import Dim, Extent, number, of
from unsay.compiler.ir.types import TensorType
from unsay.compiler.rope import rope_rows
from unsay.core import PAGE_TOKENS
from unsay.errors import UnsupportedError
from unsay.image import ModelSpec
from unsay.isa.formats import DType

MAX_BLOCKS = 1 << 16
"""Most blocks of a pool."""

_COS, _SIN = "rope.cos", "rope.sin"
_SAME = frozenset({"weight", "embed", "rms_norm", "layer_norm", "linear", "silu", "mul", "add"})
"""Operations that depend on nothing but their operands."""


def vllm_signature(step: Imported, spec: ModelSpec, *, block_tokens: int = PAGE_TOKENS) -> Imported:
    """The model of a step graph of level semantic, as a function of its arguments; rope tables join the weights."""
    return _Export(step, spec, block_tokens).run()


@dataclass(frozen=True, slots=True)
class _Cache:
    """Where the sequence lies: its slots in order [C], those of the new tokens [T], and which new token is where."""

    slots: Value
    new_slots: Value
    places: Value
    is_new: Value
    is_past: Value


class _Export:
    def __init__(self, step: Imported, spec: ModelSpec, block_tokens: int) -> None:
        self._step, self._spec = step, spec
        tokens, max_blocks = step.graph.dims["T"], -(-spec.context_length // block_tokens)
        self._tokens = Dim("T", tokens.low, min(tokens.high, spec.context_length))
        self._table, self._blocks = Dim("M", 1, max_blocks), Dim("N", 1, MAX_BLOCKS)
        self._held = Dim("C", block_tokens, block_tokens * max_blocks, of(self._table) * number(block_tokens))
        self._slots = Dim("S", block_tokens, block_tokens * MAX_BLOCKS, of(self._blocks) * number(block_tokens))
        self._block_tokens = block_tokens
        dims = (self._tokens, self._table, self._blocks, self._held, self._slots)
        self._graph = Graph(f"{step.graph.name}_vllm", dims)
        self._values: dict[Value, Value] = {}
        self._caches: list[Value] = []

    def run(self) -> Imported:
        """Inputs, every operation of the step in our terms, the output."""
        ids = self._input("input_ids", (self._tokens,), DType.I32)
        self._positions = self._input("positions", (self._tokens,), DType.I64)
        self._where = self._locate(self._input("block_table", (self._table,), DType.I32))
        spec = self._spec
        shape = (2, self._blocks, self._block_tokens, spec.num_kv_heads, spec.head_dim)
        self._given = [self._input(f"kv_cache.{layer}", shape, DType.F32) for layer in range(spec.num_layers)]
        half = spec.head_dim // 2
        self._cos, self._sin = (self._table_rows(name, half) for name in (_COS, _SIN))
        for operation in self._step.graph.operations:
            self._operation(operation, ids)
        table = rope_rows(range(spec.context_length), spec.head_dim, spec.rope_base)
        tables = {_COS: table[..., 0], _SIN: table[..., 1]}
        return Imported(self._graph, _WithTables(self._step.weights, tables))

    def _operation(self, operation: Operation, ids: Value) -> None:
        operands = [self._values[operand] for operand in operation.operands]
        match operation.kind:
            case "tokens":
                results = (ids,)
            case "select_rows":
                results = tuple(operands)
            case "rope":
                results = (self._rotated(operation, *operands),)
            case "attention":
                results = (self._attention(operation, *operands),)
            case "output":
                self._graph.add("output", (*operands, *self._caches))
                return
            case kind if kind in _SAME:
                results = self._copy(operation, operands)
            case kind:
                raise UnsupportedError(
                    f"operation {kind} in a step that is to be exported: it must be of level semantic"
                )
        self._values.update(zip(operation.results, results, strict=True))

    def _copy(self, operation: Operation, operands: list[Value]) -> tuple[Value, ...]:
        """The same operation; rows of logits (R) are rows of tokens here."""
        if operation.kind == "weight":
            named = [(value.name, value.type) for value in operation.results]
            return self._graph.add("weight", (), operation.attributes, named).results
        return build(self._graph, operation.kind, operands, operation.attributes, (operation.result.name,)).results

    def _locate(self, block_table: Value) -> _Cache:
        """Slots of the sequence's positions, and which of them this call writes."""
        graph, block, tokens = self._graph, self._block_tokens, self._tokens
        first = self._mul(emit(graph, "cast", block_table, name="blocks", dtype="i64"), block)
        grid = (self._table, block)
        first = declare(graph, "reshape", first, name="first", type=TensorType((self._table, 1), DType.I64))
        inside = declare(graph, "iota", name="inside", type=TensorType(grid, DType.I64), axis=1)
        slots = emit(graph, "add", first, inside, name="slot_grid")
        slots = declare(graph, "reshape", slots, name="slots", type=TensorType((self._held,), DType.I64))
        new_slots = emit(graph, "gather", slots, self._positions, name="slot_mapping", axis=0)
        pool = declare(graph, "iota", name="pool", type=TensorType((self._slots, tokens), DType.I64), axis=0)
        is_here = emit(graph, "equal", pool, new_slots, name="is_here")
        places = emit(graph, "cast", is_here, name="places", dtype="f32")
        count = emit(graph, "reduce_sum", places, name="count", axes=(1,), keepdims=True)
        is_new = emit(graph, "greater", count, self._number(0.0, DType.F32), name="is_new")
        at = declare(graph, "iota", name="at", type=TensorType((tokens, self._held), DType.I64), axis=1)
        rows = declare(graph, "reshape", self._positions, name="rows", type=TensorType((tokens, 1), DType.I64))
        return _Cache(slots, new_slots, places, is_new, emit(graph, "less_equal", at, rows, name="is_past"))

    def _rotated(self, operation: Operation, x: Value) -> Value:
        """(a, b) -> (a cos - b sin, b cos + a sin) for the pairs of every head."""
        graph, name = self._graph, operation.result.name
        heads, width = operation.integer("num_heads"), operation.integer("head_dim")
        adjacent = operation.string("pairing") == "adjacent"
        pairs = (self._tokens, heads, width // 2, 2) if adjacent else (self._tokens, heads, 2, width // 2)
        split = self._reshape(x, pairs, name)
        a, b = (self._take(split, 3 if adjacent else 2, index, name) for index in (0, 1))
        turned = (
            emit(graph, "sub", self._times(a, self._cos, name), self._times(b, self._sin, name), name=name),
            emit(graph, "add", self._times(b, self._cos, name), self._times(a, self._sin, name), name=name),
        )
        axis = 3 if adjacent else 2
        one = tuple(1 if index == axis else extent for index, extent in enumerate(pairs))
        joined = emit(graph, "concat", *(self._reshape(part, one, name) for part in turned), name=name, axis=axis)
        return self._reshape(joined, x.type.dims, name)

    def _attention(self, operation: Operation, q: Value, k: Value, v: Value) -> Value:
        graph, name, where = self._graph, operation.result.name, self._where
        heads, kv_heads, width = map(operation.integer, ("num_heads", "num_kv_heads", "head_dim"))
        given = self._given[operation.integer("layer")]
        held = [self._written(given, index, x, kv_heads * width, name) for index, x in enumerate((k, v))]
        stacked = emit(
            graph, "concat", *(self._reshape(part, (1, *given.type.dims[1:]), name) for part in held), name=name, axis=0
        )
        self._caches.append(stacked)
        shape = (self._held, kv_heads, width)
        rows = (emit(graph, "gather", part, where.slots, name=name, axis=0) for part in held)
        keys, values = (self._by_head(self._reshape(part, shape, name), heads // kv_heads, name) for part in rows)
        queries = emit(
            graph, "transpose", self._reshape(q, (self._tokens, heads, width), name), name=name, perm=(1, 0, 2)
        )
        y = emit(graph, "sdpa", queries, keys, values, where.is_past, name=name, scale=operation.number("scale"))
        return self._reshape(emit(graph, "transpose", y, name=name, perm=(1, 0, 2)), q.type.dims, name)

    def _written(self, cache: Value, index: int, x: Value, width: int, name: str) -> Value:
        """[S, K*D]: the slots of keys (index 0) or values (1), those of new tokens overwritten by x [T, K*D]."""
        graph, where = self._graph, self._where
        old = self._reshape(self._take(cache, 0, index, name), (self._slots, width), name)
        new = emit(graph, "matmul", where.places, x, name=name)
        return emit(graph, "select", where.is_new, new, old, name=name)

    def _by_head(self, x: Value, repeats: int, name: str) -> Value:
        """[C, K, D] -> [H, C, D]: each head of keys or values once for each of its query heads."""
        held, kv_heads, width = x.type.dims
        x = emit(self._graph, "transpose", x, name=name, perm=(1, 0, 2))
        if repeats == 1:
            return x
        assert isinstance(kv_heads, int), kv_heads
        x = self._reshape(x, (kv_heads, 1, held, width), name)
        wide = TensorType((kv_heads, repeats, held, width), DType.F32)
        x = declare(self._graph, "broadcast_to", x, name=name, type=wide)
        return self._reshape(x, (kv_heads * repeats, held, width), name)

    def _table_rows(self, name: str, half: int) -> Value:
        """The row of each token's position, [T, 1, D/2]."""
        table = TensorType((self._spec.context_length, half), DType.F32)
        weight = self._graph.add("weight", (), {"tensor": name}, [(name, table)]).result
        rows = emit(self._graph, "gather", weight, self._positions, name=f"{name}.rows", axis=0)
        return self._reshape(rows, (self._tokens, 1, half), f"{name}.rows")

    def _input(self, name: str, dims: tuple[Extent, ...], dtype: DType) -> Value:
        return self._graph.add("input", (), {"name": name}, [(name, TensorType(dims, dtype))]).result

    def _reshape(self, x: Value, dims: tuple[Extent, ...], name: str) -> Value:
        return declare(self._graph, "reshape", x, name=name, type=TensorType(dims, x.type.dtype))

    def _take(self, x: Value, axis: int, index: int, name: str) -> Value:
        """x[.., index, ..]"""
        one = emit(self._graph, "slice", x, name=name, axis=axis, start=index, stop=index + 1, step=1)
        return self._reshape(one, (*x.type.dims[:axis], *x.type.dims[axis + 1 :]), name)

    def _times(self, a: Value, b: Value, name: str) -> Value:
        return emit(self._graph, "mul", a, b, name=name)

    def _mul(self, x: Value, factor: int) -> Value:
        return emit(self._graph, "mul", x, self._number(factor, DType.I64), name=f"{x.name}.slots")

    def _number(self, value: float, dtype: DType) -> Value:
        return declare(self._graph, "constant", name="number", type=TensorType((), dtype), value=(value,))


class _WithTables(Mapping[str, NDArray[Any]]):
    """The weights of the model, read when they are asked for, and the rope tables."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], tables: Mapping[str, NDArray[Any]]) -> None:
        self._weights, self._tables = weights, tables

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._tables[name] if name in self._tables else self._weights[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self._weights, *self._tables])

    def __len__(self) -> int:
        return len(self._weights) + len(self._tables)
