"""Models of one or a few operators, in old spellings and new: what the tests compare with onnxruntime.

A case is nodes as (operator, inputs, outputs, attributes), with `x`, `y`, `z` as inputs of the model, `out` as its
output and any other name as a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


@dataclass
class Case:
    """`dims` are names of dimensions of `x`, where they have names; such a dimension is 2 to 9."""

    nodes: Sequence[tuple[str, str, str, dict[str, Any]]]
    inputs: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    opset: int = 20
    dims: Mapping[int, str] = field(default_factory=dict[int, str])

    def model(self) -> onnx.ModelProto:
        """The model, accepted by ONNX's own checker."""
        nodes = [
            helper.make_node(kind, ["" if name == "-" else name for name in taken.split()], made.split(), **attributes)
            for kind, taken, made, attributes in self.nodes
        ]
        ports = [self._port(name, array) for name, array in self.inputs.items()]
        outputs = [helper.make_empty_tensor_value_info("out")]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(nodes, "case", ports, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.checker.check_model(model)
        return model

    def _port(self, name: str, array: Array) -> onnx.ValueInfoProto:
        named = self.dims if name == "x" else {}
        sizes = [named.get(axis, size) for axis, size in enumerate(array.shape)]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes)


_random = np.random.default_rng(11)


def f(*shape: int) -> Array:
    """Random floats."""
    return _random.standard_normal(shape).astype(np.float32)


def i(*numbers: int) -> Array:
    """A list of integers."""
    return np.array(numbers, np.int64)


def one(kind: str, *arrays: Array, opset: int = 20, dims: Mapping[int, str] | None = None, **attributes: Any) -> Case:
    """One node on inputs x, y, z."""
    inputs = dict(zip("xyzp", arrays, strict=False))
    return Case([(kind, " ".join(inputs), "out", attributes)], inputs, {}, opset, dims or {})


def with_constants(kind: str, names: str, *arrays: Array, opset: int = 20, dims: Mapping[int, str] | None = None,
                   **attributes: Any) -> Case:  # fmt: skip
    """One node; of its inputs x, y and z are the model's, the others constants."""
    values = dict(zip([name for name in names.split() if name != "-"], arrays, strict=True))
    inputs = {name: array for name, array in values.items() if name in "xyz"}
    constants = {name: array for name, array in values.items() if name not in "xyz"}
    return Case([(kind, names, "out", attributes)], inputs, constants, opset, dims or {})


X, PICTURE, ROWS = f(2, 3, 4), f(2, 4, 7, 9), f(3, 5)
BOOLS = _random.random((2, 3, 4)) < 0.5
POSITIVE = np.abs(X) + np.float32(0.1)

CASES: dict[str, Case] = {
    **{kind: one(kind, X) for kind in ("Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "HardSwish", "LeakyRelu", "Neg",
                                       "Relu", "Sigmoid", "Sin", "Tanh", "Gelu", "HardSigmoid", "Elu", "Celu", "Selu",
                                       "Softplus", "Softsign", "Mish", "ThresholdedRelu", "Sign")},
    **{kind: one(kind, POSITIVE) for kind in ("Log", "Reciprocal", "Sqrt")},
    **{kind: one(kind, X, POSITIVE[:, :1]) for kind in ("Add", "Sub", "Mul", "Div", "PRelu", "Less", "Greater")},
    **{kind: one(kind, X, X.copy()) for kind in ("Equal", "LessOrEqual", "GreaterOrEqual")},
    **{kind: one(kind, X, f(4), f(3, 1)) for kind in ("Sum", "Max", "Min", "Mean")},
    **{kind: one(kind, BOOLS, ~BOOLS[:1]) for kind in ("And", "Or", "Xor")},
    "Not": one("Not", BOOLS),
    "IsNaN": one("IsNaN", np.where(BOOLS, np.float32("nan"), X)),
    "Elu, another slope": one("Elu", X, alpha=0.5),
    "Celu, another slope": one("Celu", X, alpha=0.5),
    "Selu, other slopes": one("Selu", X, alpha=0.5, gamma=2.0),
    "ThresholdedRelu, another place": one("ThresholdedRelu", X, alpha=-0.25),
    "Softplus of much": one("Softplus", X * 100),
    "Gelu tanh": one("Gelu", X, approximate="tanh"),
    "x * sigmoid(x)": Case([("Sigmoid", "x", "s", {}), ("Mul", "s x", "out", {})], {"x": X}),
    "Pow 2": with_constants("Pow", "x p", X, np.float32(2)),
    "Pow 3 of int": with_constants("Pow", "x p", X, np.array(3, np.int64)),
    "Pow half": with_constants("Pow", "x p", POSITIVE, np.float32(0.5)),
    "Pow data": one("Pow", POSITIVE, X),
    "Clip": with_constants("Clip", "x lo hi", X, np.float32(-0.5), np.float32(0.25)),
    "Clip above": with_constants("Clip", "x - hi", X, np.float32(0.25)),
    "Clip 6": one("Clip", X, opset=6 + 1, min=-0.5, max=0.25),
    "Where": one("Where", BOOLS, X, f(4)),
    "Cast to int": one("Cast", X * 10, to=TensorProto.INT32),
    "Cast bool": one("Cast", BOOLS, to=TensorProto.FLOAT),
    "CastLike": one("CastLike", X, i(1)),
    "MatMul": one("MatMul", f(2, 3, 4), f(4, 5)),
    "MatMul batched": one("MatMul", f(2, 1, 3, 4), f(5, 4, 2)),
    "MatMul vector": one("MatMul", f(4), f(2, 4, 3)),
    "MatMul by vector": one("MatMul", f(2, 3, 4), f(4)),
    "MatMul vectors": one("MatMul", f(4), f(4)),
    "Gemm": one("Gemm", f(4, 3), f(5, 4), f(5), transA=1, transB=1, alpha=0.5, beta=2.0),
    "Gemm without C": one("Gemm", f(3, 4), f(4, 5)),
    "Conv": one("Conv", PICTURE, f(6, 4, 3, 3), f(6), pads=[1, 2, 0, 1], strides=[2, 1]),
    "Conv groups dilations": one("Conv", PICTURE, f(4, 2, 3, 2), group=2, dilations=[2, 3]),
    "Conv same": one("Conv", PICTURE, f(3, 4, 4, 3), auto_pad="SAME_UPPER", strides=[2, 3]),
    "Conv same lower": one("Conv", PICTURE, f(3, 4, 4, 3), auto_pad="SAME_LOWER", strides=[2, 3]),
    "Conv valid": one("Conv", PICTURE, f(3, 4, 2, 2), auto_pad="VALID"),
    "Conv 1d": one("Conv", f(2, 3, 8), f(4, 3, 3), f(4), pads=[1, 0], strides=[2]),
    "Conv dynamic": one("Conv", PICTURE, f(6, 4, 3, 3), pads=[1, 1, 0, 1], dims={0: "N", 2: "H", 3: "W"}),
    "ConvTranspose": one("ConvTranspose", PICTURE, f(4, 3, 3, 2), f(3), strides=[2, 3], pads=[1, 0, 0, 1],
                         output_padding=[1, 2]),
    "ConvTranspose groups dilations": one("ConvTranspose", PICTURE, f(4, 2, 2, 3), group=2, dilations=[2, 1]),
    "ConvTranspose pads more than the kernel": one("ConvTranspose", PICTURE, f(4, 3, 1, 2), strides=[2, 2],
                                                   pads=[1, 2, 2, 1]),
    "ConvTranspose dynamic": one("ConvTranspose", PICTURE, f(4, 3, 2, 2), strides=[2, 2],
                                 dims={0: "N", 2: "H", 3: "W"}),
    "DepthToSpace": one("DepthToSpace", f(2, 8, 2, 3), blocksize=2),
    "DepthToSpace CRD": one("DepthToSpace", f(2, 8, 2, 3), blocksize=2, mode="CRD"),
    "SpaceToDepth": one("SpaceToDepth", f(2, 3, 4, 6), blocksize=2),
    "Resize": with_constants("Resize", "x - r", PICTURE, np.array([1, 1, 2, 3], np.float32), mode="nearest",
                             coordinate_transformation_mode="asymmetric", nearest_mode="floor", cubic_coeff_a=-0.75,
                             dims={0: "N", 2: "H", 3: "W"}),
    **{f"Resize {how} {nearest}": with_constants("Resize", "x - r", PICTURE, np.array([1, 1, 0.5, 1.7], np.float32),
                                                 coordinate_transformation_mode=how, nearest_mode=nearest)
       for how in ("asymmetric", "half_pixel") for nearest in ("floor", "ceil", "round_prefer_floor",
                                                               "round_prefer_ceil")},
    **{f"Resize linear {how}": with_constants("Resize", "x - - r", PICTURE, i(2, 4, 11, 4), mode="linear",
                                              coordinate_transformation_mode=how)
       for how in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")},
    "MaxPool": one("MaxPool", PICTURE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    "MaxPool ceil": one("MaxPool", PICTURE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    "MaxPool ceil, empty last": one("MaxPool", PICTURE, kernel_shape=[1, 1], strides=[4, 4], ceil_mode=1),
    "AveragePool": one("AveragePool", PICTURE, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "AveragePool with border": one("AveragePool", PICTURE, kernel_shape=[3, 2], pads=[1, 0, 1, 1], count_include_pad=1),
    "GlobalAveragePool": one("GlobalAveragePool", PICTURE),
    "GlobalMaxPool": one("GlobalMaxPool", PICTURE),
    "BatchNormalization": with_constants("BatchNormalization", "x s b m v", PICTURE, f(4), f(4), f(4),
                                         np.abs(f(4)), epsilon=1e-3),
    "LayerNormalization": one("LayerNormalization", X, f(4), f(4), epsilon=1e-3),
    "LayerNormalization two axes": one("LayerNormalization", X, f(3, 4), axis=1),
    "RMSNormalization": one("RMSNormalization", X, f(4), opset=23, epsilon=1e-3),
    "InstanceNormalization": one("InstanceNormalization", PICTURE, f(4), f(4), epsilon=1e-3),
    "InstanceNormalization dynamic": one("InstanceNormalization", PICTURE, f(4), f(4),
                                         dims={0: "N", 2: "H", 3: "W"}),
    "GroupNormalization": Case(
        [("GroupNormalization", "x y z", "n", {"num_groups": 2, "epsilon": 1e-3}),
         ("Cast", "n", "c", {"to": TensorProto.FLOAT}), ("Reshape", "c all", "out", {})],
        {"x": PICTURE, "y": f(4), "z": f(4)}, {"all": i(2, 4, 7, 9)}, opset=21),
    "Softmax": one("Softmax", X, axis=1),
    "Softmax 11": one("Softmax", X, opset=11, axis=1),
    "LogSoftmax": one("LogSoftmax", X),
    "ReduceSum": with_constants("ReduceSum", "x a", X, i(0, -1), keepdims=0),
    "ReduceSum 11": one("ReduceSum", X, opset=11, axes=[1]),
    "ReduceSum of nothing": Case([("ReduceSum", "x", "out", {"noop_with_empty_axes": 1})], {"x": X}),
    "ReduceMean all": one("ReduceMean", X, keepdims=0),
    "ReduceMean 13": one("ReduceMean", X, opset=13, axes=[-1]),
    "ReduceMax": with_constants("ReduceMax", "x a", X, i(2)),
    "ReduceMin": with_constants("ReduceMin", "x a", X, i(2), keepdims=0),
    "ReduceL1": with_constants("ReduceL1", "x a", X, i(1), keepdims=0),
    "ReduceL2": with_constants("ReduceL2", "x a", X, i(1)),
    "ReduceSumSquare": with_constants("ReduceSumSquare", "x a", X, i(1)),
    "ReduceLogSumExp": with_constants("ReduceLogSumExp", "x a", X, i(1), keepdims=0),
    "ArgMax": one("ArgMax", X, axis=1),
    "ArgMax flat": one("ArgMax", X, axis=-1, keepdims=0),
    "ArgMin": one("ArgMin", X, axis=1),
    "CumSum": with_constants("CumSum", "x a", X, np.array(1, np.int64)),
    "Transpose": one("Transpose", X, perm=[2, 0, 1]),
    "Transpose reversed": one("Transpose", X),
    "Reshape": with_constants("Reshape", "x s", X, i(0, -1, 2)),
    "Reshape dynamic": with_constants("Reshape", "x s", X, i(0, -1), dims={0: "B", 1: "T"}),
    "Flatten": one("Flatten", X, axis=2),
    "Flatten all": one("Flatten", X, axis=0),
    "Squeeze": with_constants("Squeeze", "x a", f(1, 3, 1), i(0)),
    "Squeeze 11": one("Squeeze", f(1, 3, 1), opset=11, axes=[2]),
    "Squeeze ones": one("Squeeze", f(1, 3, 1)),
    "Unsqueeze": with_constants("Unsqueeze", "x a", ROWS, i(0, -1)),
    "Unsqueeze 11": one("Unsqueeze", ROWS, opset=11, axes=[1]),
    "Expand": with_constants("Expand", "x s", f(3, 1), i(2, 1, 4)),
    "Tile": with_constants("Tile", "x r", ROWS, i(2, 3)),
    "Concat": one("Concat", X, f(2, 1, 4), axis=1),
    "Concat with nothing": with_constants("Concat", "x e", X, np.zeros((2, 0, 4), np.float32), axis=1),
    "Slice": with_constants("Slice", "x s e a t", X, i(-3, 1), i(9999, 3), i(1, 2), i(2, 1)),
    "Slice 9": one("Slice", X, opset=9, starts=[1], ends=[3], axes=[-1]),
    "Slice dynamic": with_constants("Slice", "x s e a", X, i(1), i(2**63 - 1), i(1), dims={1: "T"}),
    "Slice from the end": with_constants("Slice", "x s e a", X, i(-2), i(-1), i(1), dims={1: "T"}),
    "Gather": with_constants("Gather", "x n", X, i(2, -1, 0), axis=1),
    "Gather one": with_constants("Gather", "x n", X, np.array(-1, np.int64), axis=2),
    "GatherND": with_constants("GatherND", "x n", X, np.array([[1, -1], [0, 2]], np.int64)),
    "ConstantOfShape": Case([("Shape", "x", "s", {}), ("ConstantOfShape", "s", "o", {}), ("Add", "x o", "out", {})],
                            {"x": X}, dims={0: "B"}),
    "Trilu": one("Trilu", X, upper=0),
    "Trilu above": with_constants("Trilu", "x k", X, np.array(1, np.int64)),
    "Pad": with_constants("Pad", "x p v", X, i(0, 1, 2, 1, 0, 0), np.float32(-1)),
    "Pad 9": one("Pad", X, opset=9, pads=[0, 1, 0, 0, 0, 2], value=0.5),
    "Pad some axes": with_constants("Pad", "x p - a", X, i(1, 2), i(-1)),
    "Dropout": Case([("Dropout", "x", "d", {}), ("Identity", "d", "i", {}), ("Relu", "i", "out", {})], {"x": X}),
    "Attention": one("Attention", f(2, 4, 3, 8), f(2, 2, 5, 8), f(2, 2, 5, 6), opset=23, scale=0.3),
    "Attention causal": one("Attention", f(2, 3, 16), f(2, 3, 8), f(2, 3, 8), opset=23, is_causal=1,
                            q_num_heads=4, kv_num_heads=2),
    "RotaryEmbedding": one("RotaryEmbedding", f(2, 3, 5, 8), f(2, 5, 4), f(2, 5, 4), opset=23),
    "RotaryEmbedding by position": one("RotaryEmbedding", f(2, 5, 24), f(9, 4), f(9, 4), _random.integers(0, 9, (2, 5)),
                                       opset=23, num_heads=3, interleaved=1),
    "RotaryEmbedding in part": one("RotaryEmbedding", f(2, 3, 5, 8), f(2, 5, 2), f(2, 5, 2), opset=23,
                                   rotary_embedding_dim=4),
    "sizes as numbers": Case(
        [("Shape", "x", "s", {}), ("Gather", "s one", "n", {}), ("Cast", "n", "c", {"to": TensorProto.FLOAT}),
         ("ReduceSum", "x one", "sum", {}), ("Div", "sum c", "out", {})],
        {"x": X}, {"one": np.array([1], np.int64)}, dims={1: "T"}),
    "half a size, and its root": Case(
        [("Shape", "x", "s", {}), ("Gather", "s one", "n", {}), ("Cast", "n", "c", {"to": TensorProto.FLOAT}),
         ("Mul", "c half", "h", {}), ("Sqrt", "h", "r", {}), ("Mul", "x r", "out", {})],
        {"x": X}, {"one": np.array(1, np.int64), "half": np.float32(0.5)}, dims={1: "T"}),
    "positions": Case(
        [("Shape", "x", "s", {}), ("Gather", "s one", "n", {}), ("Range", "zero n one", "r", {}),
         ("Cast", "r", "f", {"to": TensorProto.FLOAT}), ("Unsqueeze", "f axes", "u", {}), ("Add", "x u", "out", {})],
        {"x": X}, {"one": np.array(1, np.int64), "zero": np.array(0, np.int64), "axes": i(-1)}, dims={1: "T"}),
    "Split": Case([("Split", "x", "a b", {"axis": 2, "num_outputs": 2}), ("Mul", "a b", "out", {})], {"x": X}),
    "Split 11": Case([("Split", "x", "a b", {"axis": 1, "split": [1, 2]}), ("Mul", "a b", "out", {})], {"x": X},
                     opset=11),
    "expanded by a shape": Case(
        [("Shape", "x", "s", {}), ("ConstantOfShape", "rank", "ones",
                                   {"value": numpy_helper.from_array(np.array([1], np.int64))}),
         ("Equal", "wanted minus", "is", {}), ("Where", "is ones wanted", "t", {}), ("Expand", "x t", "out", {})],
        {"x": X}, {"rank": i(3), "wanted": i(2, -1, 4), "minus": i(-1)}),
}  # fmt: skip
