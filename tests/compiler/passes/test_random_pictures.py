"""Random networks over pictures, spread over devices at random: the tensor passes are proved and keep the results."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from unsay.compiler.dialect.ops import declare, emit
from unsay.compiler.ir.core import Graph, Operation, Value
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.ir.types import DEVICES, Dim, TensorType
from unsay.compiler.passes.pipeline import TENSOR_PIPELINE
from unsay.compiler.verify.validate import run_validated
from unsay.isa.formats import DType

_DEVICES = sorted(DEVICES)
_LAYOUTS = ["row", "nchw", "nhwc", "blocked:16"]


class _Network:
    """Draws operations over values of 4 x 6 x 6, each for any device or for the one of its operands."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.graph = Graph("g", (Dim("B", 1, 3),))
        device, layout = self.random.choice(_DEVICES), self.random.choice(_LAYOUTS[:3])
        picture = TensorType((self.graph.dims["B"], 4, 6, 6), DType.F32, layout, device)
        self.values = [self.graph.add("input", (), {"name": "x"}, [("x", picture)]).result]
        if self.random.random() < 0.5:
            self.graph.sema["device.conv2d"] = self.random.choice(_DEVICES)
        for _ in range(self.random.randint(2, 14)):
            x = self.random.choice([self.values[-1], *self.values])
            self.values.append(self.random.choice(_MAKERS)(self, x))
        self.graph.add("output", (self.values[-1], self.random.choice(self.values)))

    def emit(self, kind: str, *operands: Value, **attributes: object) -> Value:
        remark = {"sema.device": self.random.choice(_DEVICES)} if self.random.random() < 0.25 else {}
        return emit(self.graph, kind, *operands, name=kind, **attributes, **remark)  # pyright: ignore

    def weight(self, name: str, x: Value, *dims: int) -> Value:
        name = f"{name}{len(self.graph.operations)}"
        kind = TensorType(dims, DType.F32, device=x.type.device)
        return self.graph.add("weight", (), {"tensor": name}, [(name, kind)]).result

    def conv(self, x: Value) -> Value:
        bias = [self.weight("bias", x, 4)] if self.random.random() < 0.5 else []
        same = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}
        return self.emit("conv2d", x, self.weight("w", x, 4, 4, 3, 3), *bias, **same)

    def norm(self, x: Value) -> Value:
        vectors = [self.weight(name, x, 4) for name in ("scale", "shift", "mean", "var")]
        return self.emit("batch_norm", x, *vectors, eps=1e-3)

    def elementwise(self, x: Value) -> Value:
        return self.emit(self.random.choice(["relu", "silu", "neg", "tanh"]), x)

    def together(self, x: Value) -> Value:
        alike = [value for value in self.values if value.type == x.type]
        return self.emit(self.random.choice(["add", "sub", "maximum"]), x, self.random.choice(alike))

    def number(self, x: Value) -> Value:
        scalar = TensorType((), DType.F32, device=x.type.device)
        number = declare(self.graph, "constant", name="c", type=scalar, value=(self.random.choice([0.0, 0.5, 1.0]),))
        operands = self.random.sample([x, number], 2)
        return self.emit(self.random.choice(["add", "mul", "maximum"]), *operands)

    def pool(self, x: Value) -> Value:
        return self.emit("max_pool2d", x, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))

    def moved(self, x: Value) -> Value:
        if self.random.random() < 0.5:
            return emit(self.graph, "transfer", x, name="t", device=self.random.choice(_DEVICES))
        return self.emit("reorder", x, layout=self.random.choice(_LAYOUTS))


_MAKERS: list[Callable[[_Network, Value], Value]] = [
    _Network.conv, _Network.conv, _Network.norm, _Network.elementwise, _Network.together, _Network.number,
    _Network.pool, _Network.moved,
]  # fmt: skip


def _weight(operation: Operation) -> np.ndarray:
    name = operation.string("tensor")
    array = np.random.default_rng(list(name.encode())).standard_normal(operation.result.type.dims) * 0.4
    return (np.abs(array) + 0.2 if name.startswith("var") else array).astype(np.float32)


@pytest.mark.parametrize("precision", [None, "f16"])
def test_networks_over_devices_keep_their_results(precision: str | None):
    x = np.random.default_rng(1).standard_normal((2, 4, 6, 6)).astype(np.float32)
    for seed in range(20):
        graph = _Network(seed).graph
        if precision is not None:
            graph.sema["precision.gpu"] = precision
        weights = {op.string("tensor"): _weight(op) for op in graph.operations if op.kind == "weight"}
        expected = evaluate(graph, {"x": x}, weights)
        run_validated(graph, TENSOR_PIPELINE)
        assert print_graph(parse(print_graph(graph))) == print_graph(graph)
        for a, b in zip(expected, evaluate(graph, {"x": x}, weights), strict=True):
            slack = (2e-5 if precision is None else 2e-2) * max(1e-3, float(np.abs(a).max()))
            assert np.isfinite(a).all() and np.abs(a - b).max() <= slack, seed
