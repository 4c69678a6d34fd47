"""Second stage: every node in one spelling, that of the newest operator set, whatever version the file is written in.

    Constant                          -> a constant of the program
    Identity, Dropout (not training)  -> the value itself
    axes, split, pads, min, max ... as attributes (older versions)  -> constant inputs (newer ones)
    a node that no output needs       -> dropped

What is left and has no rule in generate.py, or an attribute its rule does not know, is a problem; all are noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from unsay.compiler.frontend.onnx.parse import Attribute, Model, Node, Port, Subgraph, Tensor
from unsay.errors import UnsupportedError
from unsay.isa.formats import DType

OPSETS = range(7, 26)
"""Versions of the standard operators that are read; before 7 broadcasting was another."""


@dataclass(frozen=True, slots=True)
class Program:
    """The model with its nodes in one spelling; `problems` is what is known already not to be importable."""

    name: str
    opset: int
    inputs: tuple[Port, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Tensor]
    nodes: tuple[Node, ...]
    problems: tuple[str, ...]


_INT, _FLOAT = DType.I64, DType.F32

_AS_INPUTS: dict[str, tuple[tuple[str, DType], ...]] = {
    "Squeeze": (("axes", _INT),),
    "Unsqueeze": (("axes", _INT),),
    **{
        f"Reduce{what}": (("axes", _INT),)
        for what in ("Sum", "Mean", "Max", "Min", "Prod", "L2", "SumSquare", "LogSumExp")
    },
    "Slice": (("starts", _INT), ("ends", _INT), ("axes", _INT)),
    "Split": (("split", _INT),),
    "Clip": (("min", _FLOAT), ("max", _FLOAT)),
    "Pad": (("pads", _INT), ("value", _FLOAT)),
}
"""Attributes that later versions take as inputs 1, 2, ... in this order."""

_LISTS = frozenset({"axes", "starts", "ends", "split", "pads"})


def normalise(model: Model, known: Mapping[str, frozenset[str]]) -> Program:
    """One spelling; `known` gives the attributes that the generator's rule of each operator reads."""
    opset = model.opsets.get("", 0)
    if opset not in OPSETS:
        raise UnsupportedError(f"operator set {opset}; {OPSETS[0]} to {OPSETS[-1]} are supported")
    return _Normaliser(model, opset, known).run()


def where(node: Node, opset: int | str) -> str:
    """How a node is named in a message: operator, domain, version, name."""
    named = f" at {node.name[:80]!r}" if node.name else f" making {node.outputs[0][:80]!r}" if node.outputs else ""
    return f"{node.kind[:60]} (domain {node.domain[:60] or 'ai.onnx'}, opset {opset}){named}"


class _Normaliser:
    def __init__(self, model: Model, opset: int, known: Mapping[str, frozenset[str]]) -> None:
        self._model = model
        self._opset = opset
        self._known = known
        self._constants = dict(model.constants)
        self._same: dict[str, str] = {}
        self._problems: list[str] = []

    def run(self) -> Program:
        """The whole model."""
        nodes = [made for node in self._model.nodes if (made := self._node(node)) is not None]
        outputs = tuple(self._same.get(name, name) for name in self._model.outputs)
        needed = _needed(nodes, outputs)
        for node in needed:
            self._check(node)
        return Program(
            self._model.name, self._opset, self._model.inputs, outputs, self._constants, needed, tuple(self._problems)
        )

    def _node(self, node: Node) -> Node | None:
        """The node in its newest spelling, None if it is only another name for a value or is a constant."""
        node = replace(node, inputs=tuple(self._same.get(name, name) for name in node.inputs))
        if node.domain:
            return node
        if node.kind == "Constant":
            return self._constant(node)
        if node.kind == "Identity" or (node.kind == "Dropout" and self._is_inference(node)):
            if not node.outputs or not node.inputs or not node.inputs[0]:
                return node
            self._same[node.outputs[0]] = node.inputs[0]
            return None
        if node.kind in _AS_INPUTS:
            node = self._as_inputs(node)
        if node.kind in ("Softmax", "LogSoftmax") and self._opset < 13:
            return replace(node, attributes={"axis": 1, **node.attributes, "flatten": 1})
        return node

    def _constant(self, node: Node) -> Node | None:
        ((name, value),) = node.attributes.items() if len(node.attributes) == 1 else [("", 0)]
        tensor = _tensor(value) if name.startswith("value") else None
        if tensor is None or len(node.outputs) != 1:
            return node
        self._constants[node.outputs[0]] = tensor
        return None

    def _is_inference(self, node: Node) -> bool:
        """No mask is asked for, and training_mode is absent or False."""
        mode = self._constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
        off = len(node.inputs) < 3 or not node.inputs[2] or (mode is not None and not mode.array.any())
        return len(node.outputs) == 1 and off

    def _as_inputs(self, node: Node) -> Node:
        wanted = _AS_INPUTS[node.kind]
        if not any(name in node.attributes for name, _ in wanted):
            return node
        inputs = [*node.inputs[:1]]
        for name, dtype in wanted:
            given = node.attributes.get(name)
            inputs.append("" if given is None else self._parameter(node, name, given, dtype))
        rest = {name: value for name, value in node.attributes.items() if name not in dict(wanted)}
        return replace(node, inputs=tuple(inputs), attributes=rest)

    def _parameter(self, node: Node, name: str, value: Attribute, dtype: DType) -> str:
        made = f"{node.outputs[0]}/{name}"
        array = np.asarray(value, np.int64 if dtype is _INT else np.float32)
        self._constants[made] = Tensor(dtype, np.atleast_1d(array) if name in _LISTS else array)
        return made

    def _check(self, node: Node) -> None:
        known = None if node.domain else self._known.get(node.kind)
        opset = self._model.opsets.get(node.domain, "?")
        if known is None:
            attributes = ", ".join(f"{name[:40]} = {_short(value)}" for name, value in node.attributes.items())
            self._problems.append(
                f"{where(node, opset)}: no rule for it" + (f"; attributes {attributes}" if attributes else "")
            )
            return
        for name, value in node.attributes.items():
            if name not in known:
                self._problems.append(f"{where(node, opset)}: attribute {name[:40]} = {_short(value)} is not known")


def _needed(nodes: list[Node], outputs: tuple[str, ...]) -> tuple[Node, ...]:
    """The nodes some output depends on, in order."""
    wanted, kept = set(outputs), list[Node]()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))


def _tensor(value: Attribute) -> Tensor | None:
    """What a Constant holds; None for text."""
    match value:
        case Tensor():
            return value
        case int() | (int(), *_):
            return Tensor(DType.I64, np.array(value, np.int64))
        case float() | (float(), *_):
            return Tensor(DType.F32, np.array(value, np.float32))
        case _:
            return None


def _short(value: Attribute) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.array.shape)}"
    return "a graph" if isinstance(value, Subgraph) else repr(value)[:60]
