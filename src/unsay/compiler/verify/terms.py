"""What a graph computes, as terms: each value a function of the step's inputs, the model's tensors and the caches.

    %n = rms_norm(%x, %gamma) {eps = 1e-05, output = "f32"}   ->   rms_norm{eps = 1e-05, output = 'f32'}(x, gamma)

Two graphs compute the same if their observations are equal terms: every operand of `output`, and the cache of every
layer that attends. Attributes, the result's position and its type are part of the function symbol, so that functions
that differ in any of them are not assumed equal; sizes are not, so that what is proved holds for all of them.

What a graph does beyond its data flow is in the terms too:
    memory   an operation that works in place overwrites its operand: what a later reader reads is `overwritten(..)`,
             which is equal to nothing
    caches   attention appends to the cache of its layer: `append(cache, k, v)`
    layouts  a tensor laid out as paired:D is `pair_rows` of the tensor as the file has it. Other layouts and devices
             say where a value lies and not what it is (dialect/semantics.py): `reorder` and `transfer` give the term
             they are given, but what is input and output lies where it did
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from unsay.compiler.dialect.ops import BY_NAME
from unsay.compiler.dialect.verifier import REMARK
from unsay.compiler.ir.core import AttributeValue, Graph, Operation, Value
from unsay.compiler.ir.types import ROW, TensorType, paired_head_dim
from unsay.compiler.verify.spec import Level
from unsay.errors import IrError
from unsay.isa.formats import DType


@dataclass(frozen=True, slots=True)
class Symbol:
    """A function: an operation with its attributes, as its result of this index and type.

    Attributes are part of it by their text, in which 1, 1.0 and true differ, as 0.0 and -0.0 do.
    """

    kind: str
    attributes: Mapping[str, AttributeValue]
    type: TensorType
    index: int
    number: int


class Term:
    """A function applied to terms; equal terms of one store are one object. A term's operands have smaller numbers."""

    __slots__ = ("attributes", "index", "kind", "number", "operands", "symbol", "type")

    def __init__(self, symbol: Symbol, operands: tuple[Term, ...], number: int) -> None:
        self.symbol = symbol
        self.operands = operands
        self.number = number
        self.kind = symbol.kind
        self.attributes = symbol.attributes
        self.type = symbol.type
        self.index = symbol.index

    @property
    def dtype(self) -> str:
        """Name of the element type, for conditions of equations."""
        return self.type.dtype.name.lower()

    @property
    def rank(self) -> int:
        """Number of dimensions, for conditions of equations."""
        return self.type.rank

    @property
    def layout(self) -> str:
        """How it lies in memory, for conditions of equations."""
        return self.type.layout

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={value!r}" for name, value in sorted(self.attributes.items()))
        position = f"[{self.index}]" if self.index else ""
        return f"{self.kind}{{{attributes}}}{position}({', '.join(f't{term.number}' for term in self.operands)})"


class Terms:
    """A store of terms, of their function symbols by number, and of the types in those."""

    def __init__(self) -> None:
        self.all: list[Term] = []
        self._terms: dict[tuple[int, ...], Term] = {}
        self._symbols: dict[tuple[str, str, int, int], Symbol] = {}
        self._of_operations: dict[Operation, tuple[str, list[TensorType], list[Symbol]]] = {}
        self._types: dict[TensorType, int] = {}
        self._types_by_id: dict[int, tuple[int, TensorType, TensorType]] = {}

    def apply(
        self,
        kind: str,
        operands: Sequence[Term],
        attributes: Mapping[str, AttributeValue],
        tensor_type: TensorType,
        index: int = 0,
    ) -> Term:
        """The term of this function and these operands; of its type, layouts other than paired and devices are left."""
        return self.of_symbol(self._symbol(kind, attributes, tensor_type, index), operands)

    def rebuild(self, term: Term, operands: Sequence[Term]) -> Term:
        """The same function of other operands of the same types."""
        return self.of_symbol(term.symbol, operands)

    def of_symbol(self, symbol: Symbol, operands: Sequence[Term]) -> Term:
        """The term of this function and these operands."""
        key = (symbol.number, *[operand.number for operand in operands])
        term = self._terms.get(key)
        if term is None:
            term = self._terms[key] = Term(symbol, tuple(operands), len(self.all))
            self.all.append(term)
        return term

    def symbols(self, operation: Operation) -> list[Symbol]:
        """The functions that an operation's results are of its operands.

        Found again by the operation if its attributes and types are what they were.
        """
        text, types = repr(operation.attributes), [value.type for value in operation.results]
        known = self._of_operations.get(operation)
        if known is None or known[0] != text or known[1] != types:
            attributes = meant(operation)
            made = [self._symbol(operation.kind, attributes, kind, index) for index, kind in enumerate(types)]
            known = self._of_operations[operation] = (text, types, made)
        return known[2]

    def _symbol(
        self, kind: str, attributes: Mapping[str, AttributeValue], tensor_type: TensorType, index: int
    ) -> Symbol:
        text = repr(sorted(attributes.items())) if attributes else ""
        number, plain_type = self._type(tensor_type)
        key = (kind, text, index, number)
        symbol = self._symbols.get(key)
        if symbol is None:
            symbol = self._symbols[key] = Symbol(kind, dict(attributes), plain_type, index, len(self._symbols))
        return symbol

    def _type(self, tensor_type: TensorType) -> tuple[int, TensorType]:
        """A type without what says where values lie, and its number; found by identity first, for hashing is slow."""
        known = self._types_by_id.get(id(tensor_type))
        if known is None:
            layout = tensor_type.layout if paired_head_dim(tensor_type.layout) else ROW
            plain = TensorType(tensor_type.dims, tensor_type.dtype, layout)
            known = (self._types.setdefault(plain, len(self._types)), plain, tensor_type)
            self._types_by_id[id(tensor_type)] = known
        return known[0], known[1]


@dataclass(slots=True)
class Meaning:
    """What can be seen of a graph from outside, and the term of each value when it was made, by name."""

    observations: dict[str, Term] = field(default_factory=dict[str, Term])
    values: dict[str, Term] = field(default_factory=dict[str, Term])


CACHE = TensorType((), DType.F16)
"""The type of the keys and values of a layer; its size is no function of the graph's dimensions."""


@dataclass(slots=True)
class _Memory:
    """What memory holds now."""

    content: Term


@dataclass(slots=True)
class _View:
    """Where a value lies, and what was written there; `selected` are the types of rows selected, which are no copy."""

    memory: _Memory
    written: Term
    selected: tuple[TensorType, ...] = ()


def meaning(terms: Terms, graph: Graph, level: Level) -> Meaning:
    """The meaning of a graph of this level.

    Operations in place overwrite memory if one instruction carries them out: fused ones, and all at level lowerable.
    """
    return _Reading(terms, level).read(graph)


class _Reading:
    """One walk over a graph."""

    def __init__(self, terms: Terms, level: Level) -> None:
        self._terms = terms
        self._level = level
        self._views: dict[Value, _View] = {}
        self._caches: dict[int, Term] = {}
        self._layouts: dict[int, str] = {}
        self._meaning = Meaning()

    def read(self, graph: Graph) -> Meaning:
        for operation in graph.operations:
            self._operation(operation)
        for layer, cache in self._caches.items():
            self._meaning.observations[f"cache of layer {layer}"] = self._plain_cache(layer, cache)
        return self._meaning

    def _operation(self, operation: Operation) -> None:
        if operation.kind == "output":
            self._output(operation)
        elif operation.kind in ("reorder", "transfer") and not _is_paired(operation):
            self._views[operation.result] = self._views[operation.operands[0]]
        elif operation.kind == "select_rows":
            base = self._views[operation.operands[0]]
            self._views[operation.result] = replace(base, selected=(*base.selected, operation.result.type))
        elif self._works_in_place(operation):
            self._overwrite(operation)
        else:
            operands = [self._load(operand) for operand in operation.operands]
            for value, term in zip(operation.results, self._results(operation, operands), strict=True):
                self._views[value] = _View(_Memory(term), term)
                self._meaning.values[value.name] = term
            return
        for value in operation.results:
            self._meaning.values[value.name] = self._load(value)

    def _output(self, operation: Operation) -> None:
        seen = self._meaning.observations
        for operand in operation.operands:
            where = {"layout": operand.type.layout, "device": operand.type.device}
            seen[f"output {len(seen)}"] = self._terms.apply("output", (self._load(operand),), where, operand.type)

    def _works_in_place(self, operation: Operation) -> bool:
        op = BY_NAME[operation.kind]
        return op.in_place is not None and (op.fused or self._level is Level.LOWERABLE)

    def _overwrite(self, operation: Operation) -> None:
        """The result takes over the memory of an operand; operands that share it are read half overwritten."""
        target = BY_NAME[operation.kind].in_place
        assert target is not None
        view = self._views[operation.operands[target]]
        operands: list[Term] = []
        for position, operand in enumerate(operation.operands):
            shared = position != target and self._views[operand].memory is view.memory
            operands.append(self._torn(self._load(operand)) if shared else self._load(operand))
        (result,) = self._results(operation, operands)
        if view.selected:
            view.memory.content = self._torn(view.memory.content)
            self._views[operation.result] = _View(_Memory(result), result)
        else:
            view.memory.content = result
            self._views[operation.result] = _View(view.memory, result)

    def _load(self, value: Value) -> Term:
        view = self._views[value]
        term, content = view.written, view.memory.content
        if content is not term:
            term = self._terms.apply("overwritten", (term, content), {}, term.type)
        for tensor_type in view.selected:
            term = self._terms.apply("select_rows", (term,), {}, tensor_type)
        return term

    def _torn(self, term: Term) -> Term:
        return self._terms.apply("torn", (term,), {}, term.type)

    def _results(self, operation: Operation, operands: list[Term]) -> list[Term]:
        if operation.kind == "weight":
            return [self._weight(operation)]
        if operation.kind == "attention":
            operands = [self._attended_cache(operation, operands), *operands]
        elif not BY_NAME[operation.kind].pure:
            raise IrError(f"{operation.kind} has an effect that T1 does not know", *operation.location)
        return [self._terms.of_symbol(symbol, operands) for symbol in self._terms.symbols(operation)]

    def _weight(self, operation: Operation) -> Term:
        attributes = meant(operation)
        wanted = operation.result.type
        head_dim = paired_head_dim(wanted.layout)
        if head_dim is None:
            return self._terms.apply("weight", (), attributes, wanted)
        row = self._terms.apply("weight", (), attributes, replace(wanted, layout=ROW))
        return self._terms.apply("pair_rows", (row,), {"head_dim": head_dim}, wanted)

    def _attended_cache(self, operation: Operation, operands: list[Term]) -> Term:
        """The cache as the operation finds it; it leaves it with k and v appended."""
        layer, (_, k, v) = operation.integer("layer"), operands
        found = self._caches[layer] if layer in self._caches else self._first_cache(layer, k.layout)
        self._caches[layer] = self._terms.apply("append", (found, k, v), {}, CACHE)
        return found

    def _first_cache(self, layer: int, layout: str) -> Term:
        """The cache at the start of the step, which holds keys in the layout of those appended to it."""
        self._layouts[layer] = layout
        cache = self._terms.apply("cache", (), {"layer": layer}, CACHE)
        head_dim = paired_head_dim(layout)
        return cache if head_dim is None else self._terms.apply("pair_cache", (cache,), {"head_dim": head_dim}, CACHE)

    def _plain_cache(self, layer: int, cache: Term) -> Term:
        """The cache with its keys in the order of the model file, in which caches of two graphs are compared."""
        head_dim = paired_head_dim(self._layouts[layer])
        return cache if head_dim is None else self._terms.apply("unpair_cache", (cache,), {"head_dim": head_dim}, CACHE)


def meant(operation: Operation) -> dict[str, AttributeValue]:
    """Attributes that are part of an operation's meaning: no remarks; of an input, where it lies too."""
    attributes = {name: value for name, value in operation.attributes.items() if not name.startswith(REMARK)}
    if operation.kind == "input":
        attributes |= {"layout": operation.result.type.layout, "device": operation.result.type.device}
    return attributes


def _is_paired(operation: Operation) -> bool:
    types = (operation.operands[0].type, operation.result.type)
    return any(paired_head_dim(tensor_type.layout) for tensor_type in types)


def reachable(roots: Iterable[Term], known: Container[int] = ()) -> list[Term]:
    """The terms that others are made of, and themselves, operands first; those of known numbers are left out."""
    seen: dict[int, Term] = {}
    waiting = list(roots)
    while waiting:
        term = waiting.pop()
        if term.number not in seen and term.number not in known:
            seen[term.number] = term
            waiting.extend(term.operands)
    return [seen[number] for number in sorted(seen)]
