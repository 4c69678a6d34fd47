"""First stage: an ONNX file as values, checked. What the nodes mean is not looked at here.

A file is a stranger's: the wire is bounded (wire.py), tensors have as many bytes as their shape needs (tensors.py),
every name is defined once and before it is used, so a cycle cannot be written down.
Source of the field numbers: onnx/onnx.proto of the ONNX repository, IR version 13.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from unsay.compiler.frontend.onnx.tensors import TensorReader, check_shape, dtype_of, map_file
from unsay.compiler.frontend.onnx.wire import Buffer, Message
from unsay.errors import ModelFileError, ModelNotFoundError
from unsay.isa.formats import DType

MAX_NODES = 1 << 17
MAX_EXTENT = 1 << 31


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant of the file."""

    dtype: DType
    array: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Subgraph:
    """The body of a control-flow node: noted, not read."""


Attribute: TypeAlias = int | float | str | Tensor | Subgraph | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of the file; an input left out is ''. `domain` is '' for the standard operators."""

    name: str
    kind: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the graph. A size is a number, a name, or None where the file does not say."""

    name: str
    dtype: DType
    sizes: tuple[int | str | None, ...] | None


@dataclass(frozen=True, slots=True)
class Model:
    """The file: `opsets` is the version of each operator domain; `functions` the names of functions it defines."""

    name: str
    producer: str
    opsets: Mapping[str, int]
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    functions: tuple[str, ...]


def parse(path: Path) -> Model:
    """Read and check a file; raises ModelNotFoundError, ModelFileError or UnsupportedError."""
    if not path.exists():
        raise ModelNotFoundError(f"no model file at {path}")
    data = map_file(path)
    try:
        model = _Parser(path, data).model(Message(data, 0, len(data)))
        _check_names(model)
    except ModelFileError as error:
        raise type(error)(f"{path.name}: {error}") from error
    return model


class _Parser:
    def __init__(self, path: Path, data: Buffer) -> None:
        self._data = data
        self._tensors = TensorReader(path, data)

    def model(self, message: Message) -> Model:
        graph = message.message(7)
        if graph is None or 8 not in message:
            raise ModelFileError("not an ONNX model: it has no graph, or no operator sets")
        constants = self._constants(graph)
        if graph.count(1) > MAX_NODES:
            raise ModelFileError(f"{graph.count(1)} nodes, {MAX_NODES} is the most")
        return Model(
            name=graph.text(2),
            producer=f"{message.text(2)} {message.text(3)}".strip()[:100],
            opsets={_domain(entry.text(1)): entry.integer(2) for entry in message.messages(8)},
            inputs=tuple(_port(value) for value in graph.messages(11) if value.text(1) not in constants),
            outputs=tuple(value.text(1) for value in graph.messages(12)),
            constants=constants,
            nodes=tuple([self._node(node) for node in graph.messages(1)]),
            functions=tuple(f"{function.text(10)}.{function.text(1)}" for function in message.messages(25)),
        )

    def _constants(self, graph: Message) -> dict[str, Tensor]:
        if graph.count(15):
            raise ModelFileError("sparse initializers; store them dense")
        constants: dict[str, Tensor] = {}
        for message in graph.messages(5):
            name, dtype, array = self._tensors.read(message)
            if name in constants:
                raise ModelFileError(f"the tensor {name[:80]!r} occurs twice")
            constants[name] = Tensor(dtype, array)
        return constants

    def _node(self, message: Message) -> Node:
        attributes: dict[str, Attribute] = {}
        for attribute in message.messages(5):
            attributes[attribute.text(1)] = self._attribute(attribute)
        domain = _domain(message.text(7))
        return Node(message.text(3), message.text(4), domain, message.texts(1), message.texts(2), attributes)

    def _attribute(self, message: Message) -> Attribute:
        """The value in the field its type names; a type not needed by any operator we know is a ModelFileError."""
        match message.integer(20):
            case 1:
                return message.float32(2)
            case 2:
                return message.integer(3)
            case 3:
                return message.text(4)
            case 4 if (tensor := message.message(5)) is not None:
                return Tensor(*self._tensors.read(tensor)[1:])
            case 5 | 10:
                return Subgraph()
            case 6:
                return tuple(memoryview(message.fixed(7, 4)).cast("f").tolist())
            case 7:
                return tuple(message.integers(8))
            case 8:
                return message.texts(9)
            case other:
                raise ModelFileError(f"attribute {message.text(1)[:80]!r} has the type {other}, which is not read")


def _domain(text: str) -> str:
    return "" if text == "ai.onnx" else text


def _port(message: Message) -> Port:
    name = message.text(1)
    kind = message.message(2)
    tensor = None if kind is None else kind.message(1)
    if not name or tensor is None:
        raise ModelFileError(f"the graph's input {name[:80]!r} is not a tensor")
    try:
        dtype = dtype_of(tensor.integer(1))
    except ModelFileError as error:
        raise type(error)(f"the graph's input {name[:80]!r}: {error}") from error
    shape = tensor.message(2)
    sizes = None if shape is None else tuple(_size(name, dim) for dim in shape.messages(1))
    if sizes is not None:
        check_shape(tuple(size for size in sizes if isinstance(size, int)))
    return Port(name, dtype, sizes)


def _size(name: str, message: Message) -> int | str | None:
    if 1 in message:
        size = message.integer(1)
        if not 1 <= size <= MAX_EXTENT:
            raise ModelFileError(f"the graph's input {name[:80]!r} has a dimension of {size}, 1 to 2^31 are possible")
        return size
    return message.text(2) or None


def _check_names(model: Model) -> None:
    """Single assignment, definitions first."""
    defined = {"", *model.constants}
    _define(defined, (port.name for port in model.inputs), "an input")
    for index, node in enumerate(model.nodes):
        for name in node.inputs:
            if name not in defined:
                raise ModelFileError(
                    f"node {index} ({node.kind[:40]}) reads {name[:80]!r} before it is defined; "
                    "nodes must be sorted, and a cycle cannot be"
                )
        _define(defined, node.outputs, f"node {index} ({node.kind[:40]})")
    for name in model.outputs:
        if name not in defined or not name:
            raise ModelFileError(f"the output {name[:80]!r} is not defined")
    if not model.outputs:
        raise ModelFileError("the graph has no outputs")


def _define(defined: set[str], names: Iterable[str], who: str) -> None:
    for name in names:
        if name in defined and name:
            raise ModelFileError(f"{who} defines {name[:80]!r}, which is defined already")
        defined.add(name)
