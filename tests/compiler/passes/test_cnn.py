"""A small CNN from an ONNX file, through every tensor pass: what is fused, what is moved where, and what it computes.

The judge is onnxruntime, on the file.
"""

from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from unsay.compiler.frontend.imported import Imported
from unsay.compiler.frontend.onnx import import_onnx
from unsay.compiler.ir.core import Graph
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.ir.parser import parse
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.pipeline import TENSOR_PIPELINE
from unsay.compiler.verify.memory_plan import memory_plan
from unsay.compiler.verify.spec import Level, check
from unsay.compiler.verify.validate import run_validated

_SHAPES = {
    "w1": (8, 3, 3, 3), "b1": (8,), "w2": (8, 8, 3, 3), "b2": (8,), "scale": (8,), "shift": (8,), "mean": (8,),
    "w3": (8, 8, 3, 3), "b3": (8,), "w4": (8, 10), "b4": (10,),
}  # fmt: skip
_SAME = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}


def _onnx() -> bytes:
    """Two convolutions with relu, one normed, a residual block, a pool and a classifier; N pictures of 3 x 16 x 16."""
    random = np.random.default_rng(5)
    weights = {name: (random.standard_normal(shape) / 4).astype(np.float32) for name, shape in _SHAPES.items()}
    weights["var"] = random.uniform(0.5, 2.0, 8).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **_SAME),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], strides=[2, 2], **_SAME),
        helper.make_node("BatchNormalization", ["c2", "scale", "shift", "mean", "var"], ["n2"], epsilon=1e-3),
        helper.make_node("Relu", ["n2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3", "b3"], ["c3"], **_SAME),
        helper.make_node("Add", ["c3", "r2"], ["s"]),
        helper.make_node("Relu", ["s"], ["r3"]),
        helper.make_node("MaxPool", ["r3"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["N", 3, 16, 16]), ("y", ["N", 10]))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "cnn", ports[:1], ports[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=8, opset_imports=opsets).SerializeToString()


@pytest.fixture
def cnn(tmp_path: Path) -> Imported:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(_onnx())
    return import_onnx(path, {"N": (1, 8)})


def _optimised(cnn: Imported, **remarks: str | int) -> Graph:
    graph = cnn.graph.copy()
    graph.sema.update(remarks)
    proofs = run_validated(graph, TENSOR_PIPELINE)
    assert all(proof.status == "proved" for proof in proofs)
    check(graph, Level.PLACED)
    assert print_graph(parse(print_graph(graph))) == print_graph(graph)
    return graph


def _kinds(graph: Graph) -> Counter[str]:
    return Counter(operation.kind for operation in graph.operations)


def _agrees(cnn: Imported, graph: Graph, num_pictures: int, tolerance: float) -> None:
    x = np.random.default_rng(num_pictures).standard_normal((num_pictures, 3, 16, 16)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(_onnx()).run(None, {"x": x})
    (got,) = evaluate(graph, {"x": x}, cnn.weights)
    assert got.shape == expected.shape == (num_pictures, 10) and np.ptp(expected) > 0.05
    assert np.abs(got - expected).max() < tolerance


def test_convolutions_and_relus_are_fused(cnn: Imported):
    graph = _optimised(cnn)
    kinds = _kinds(graph)
    assert (kinds["conv2d_relu"], kinds["conv2d"], kinds["relu"]) == (2, 1, 1)
    assert not kinds.keys() & {"batch_norm", "reorder", "transfer", "cast"}
    _agrees(cnn, graph, 3, 1e-5)


def test_one_way_to_the_gpu_and_back_with_nhwc_between(cnn: Imported):
    graph = _optimised(cnn, **{"device.conv2d": "gpu", "device.conv2d_relu": "gpu"})
    kinds = _kinds(graph)
    assert (kinds["transfer"], kinds["reorder"]) == (2, 2)
    pictures = [op for op in graph.operations if op.kind in ("conv2d_relu", "conv2d", "add", "relu", "max_pool2d")]
    on_gpu = [op.result.type for op in pictures if op.result.type.rank == 4]
    assert len(on_gpu) == 6 and all((kind.device, kind.layout) == ("gpu", "nhwc") for kind in on_gpu)
    assert memory_plan(graph).arena_bytes.keys() == {"cpu", "gpu"}
    _agrees(cnn, graph, 8, 1e-5)


def test_products_on_the_gpu_in_f16(cnn: Imported):
    graph = _optimised(cnn, **{"device.conv2d": "gpu", "device.conv2d_relu": "gpu", "precision.gpu": "f16"})
    assert _kinds(graph)["cast"] > 0
    _agrees(cnn, graph, 2, 5e-3)


def test_the_version_for_one_batch(cnn: Imported):
    graph = _optimised(cnn, dynamic_batch="N", batch=4)
    assert "N" not in graph.dims and graph.operations[0].result.type.dims[0] == 4
    _agrees(cnn, graph, 4, 1e-5)
