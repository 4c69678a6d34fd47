"""ONNX files made to do harm: each must end in a ModelFileError, and nothing of a stated size may be allocated."""

from __future__ import annotations

import numpy as np

from tests.compiler.frontend.onnx_bytes import external, field, model, node, port, tensor, varint

X = port("x", [2, 3])
PICTURE = port("i", [1, 1, 4, 4])
ONES = np.ones((2, 3), np.float32)
ADD = [node("Add", "x w", "y")]


def small() -> bytes:
    """A model that is right: what is cut short and overwritten."""
    weights = [tensor("w", np.ones((4, 3), np.float32)), tensor("s", np.array([0, -1]))]
    nodes = [
        node("Gemm", "x w -", "h", transB=1, alpha=0.5),
        node("Softmax", "h", "p", axis=1),
        node("Reshape", "p s", "y"),
    ]
    return model(nodes, [port("x", ["N", 3])], ["y"], weights)


def with_tensor(raw: bytes) -> bytes:
    """A model that adds this tensor, named w."""
    return model(ADD, [X], ["y"], [raw])


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "text": b"not a model",
    "zip file": b"PK\3\4" + bytes(100),
    "gguf file": b"GGUF" + bytes(100),
    "group wire type": varint(1 << 3 | 3) + bytes(8),
    "field 0": bytes([0, 1]),
    "varint of 11 bytes": bytes([8, *[0xFF] * 10, 1]),
    "length 2^63": bytes([8 << 3 | 2]) + varint(2**63),
    "no graph": field(8, field(2, 17)),
    "graph is a number": field(8, field(2, 17)) + field(7, 5),
    "no operator sets": field(7, field(1, node("Relu", "x", "y"))),
    "no outputs": model(ADD, [X], [], [tensor("w", ONES)]),
    "name not utf-8": model([field(1, b"\xff\xfe") + field(4, "Relu")], [X], ["y"]),
    "cycle": model([node("Add", "x b", "a"), node("Relu", "a", "b")], [X], ["b"]),
    "reads itself": model([node("Add", "x a", "a")], [X], ["a"]),
    "unsorted": model([node("Relu", "a", "y"), node("Relu", "x", "a")], [X], ["y"]),
    "defined twice": model([node("Relu", "x", "y"), node("Neg", "x", "y")], [X], ["y"]),
    "output undefined": model([node("Relu", "x", "y")], [X], ["z"]),
    "input is a sequence": model([node("Relu", "x", "y")], [field(1, "x") + field(2, field(4, b""))], ["y"]),
    "input of no size": model([node("Relu", "x", "y")], [port("x", [0, 3])], ["y"]),
    "input of size -1": model([node("Relu", "x", "y")], [port("x", [-1])], ["y"]),
    "input of 2^63": model([node("Relu", "x", "y")], [port("x", [2**63 - 1])], ["y"]),
    "input of 9 dimensions": model([node("Relu", "x", "y")], [port("x", [1] * 9)], ["y"]),
    "input of 2^60 elements": model([node("Relu", "x", "y")], [port("x", [2**30, 2**30])], ["y"]),
    "rank not stated": model([node("Relu", "x", "y")], [port("x", None)], ["y"]),
    "tensor too short": with_tensor(tensor("w", ONES[:1], [2, 3])),
    "tensor too long": with_tensor(tensor("w", ONES, [3])),
    "tensor of -1": with_tensor(tensor("w", ONES, [-1, -6])),
    "tensor of 2^63": with_tensor(tensor("w", ONES, [2**63 - 1, 2**63 - 1])),
    "product wraps to 6": with_tensor(tensor("w", ONES, [2**33, 2**33, 6])),
    "tensor of 100 dimensions": with_tensor(tensor("w", ONES, [1] * 100)),
    "tensor of no type": with_tensor(tensor("w", ONES, code=0)),
    "tensor of type 99": with_tensor(tensor("w", ONES, code=99)),
    "tensor of strings": with_tensor(tensor("w", ONES, code=8)),
    "tensor of int4": with_tensor(tensor("w", ONES, code=22)),
    "bool of 2": with_tensor(tensor("w", np.full((2, 3), 2, np.int8), code=9)),
    "floats as int64": with_tensor(field(1, 2) + field(2, 1) + field(7, varint(1) + varint(2)) + field(8, "w")),
    "half that is none": with_tensor(field(1, 1) + field(2, 10) + field(5, varint(1 << 20)) + field(8, "w")),
    "tensor twice": model(ADD, [X], ["y"], [tensor("w", ONES), tensor("w", ONES)]),
    "sparse initializer": model(ADD, [X], ["y"], [tensor("w", ONES)]) + field(7, field(15, b"")),
    "external at /etc/passwd": with_tensor(external("w", [2, 3], location="/etc/passwd")),
    "external above": with_tensor(external("w", [2, 3], location="../secret.bin")),
    "external above, hidden": with_tensor(external("w", [2, 3], location="a/../../secret.bin")),
    "external through a link": with_tensor(external("w", [2, 3], location="link.bin")),
    "external without a place": with_tensor(external("w", [2, 3])),
    "external of nothing": with_tensor(external("w", [2, 3], location="missing.bin")),
    "external directory": with_tensor(external("w", [2, 3], location=".")),
    "external beyond its end": with_tensor(external("w", [2, 3], location="data.bin", offset="1000")),
    "external offset negative": with_tensor(external("w", [2, 3], location="data.bin", offset="-8")),
    "external offset of 2^70": with_tensor(external("w", [2, 3], location="data.bin", offset=str(2**70))),
    "external length lies": with_tensor(external("w", [2, 3], location="data.bin", length="4")),
    "external with a null": with_tensor(external("w", [2, 3], location="data.bin\0")),
    "shapes that do not fit": with_tensor(tensor("w", np.ones((5, 7), np.float32))),
    "types that do not fit": with_tensor(tensor("w", np.ones((2, 3)))),
    "attribute of the wrong type": model([node("Softmax", "x", "y", axis="one")], [X], ["y"]),
    "attribute of no type": model([node("Relu", "x", "y") + field(5, field(1, "a"))], [X], ["y"]),
    "axis 2^62": model([node("Softmax", "x", "y", axis=2**62)], [X], ["y"]),
    "eps NaN": model([node("LayerNormalization", "x w", "y", epsilon=float("nan"))], [X], ["y"],
                     [tensor("w", np.ones(3, np.float32))]),
    "too few inputs": model([node("Add", "x", "y")], [X], ["y"]),
    "too many inputs": model([node("Relu", "x x", "y")], [X], ["y"]),
    "input left out": model([node("Add", "x -", "y")], [X], ["y"]),
    "no inputs": model([field(2, "y") + field(4, "Add")], [X], ["y"]),
    "fill 2^40": model([node("ConstantOfShape", "s", "y")], [X], ["y"], [tensor("s", np.array([2**40, 2**40]))]),
    "fill -1": model([node("ConstantOfShape", "s", "y")], [X], ["y"], [tensor("s", np.array([-1]))]),
    "expand to 2^62": model([node("Expand", "x s", "y")], [X], ["y"], [tensor("s", np.array([2**62, 1, 1]))]),
    "range of 2^62": model([node("Range", "a b c", "y")], [X], ["y"], [
        tensor("a", np.array(0)), tensor("b", np.array(2**62)), tensor("c", np.array(1))]),
    "range by 0": model([node("Range", "a a a", "y")], [X], ["y"], [tensor("a", np.array(0))]),
    "pad of 2^60": model([node("Pad", "x s", "y")], [X], ["y"], [tensor("s", np.array([2**60] * 4))]),
    "pad of -1": model([node("Pad", "x s", "y")], [X], ["y"], [tensor("s", np.array([-1] * 4))]),
    "reshape to two unknowns": model([node("Reshape", "x s", "y")], [X], ["y"], [tensor("s", np.array([-1, -1]))]),
    "reshape to others": model([node("Reshape", "x s", "y")], [X], ["y"], [tensor("s", np.array([5, 7]))]),
    "division by 0": model([node("Div", "s z", "t"), node("Reshape", "x t", "y")], [X], ["y"], [
        tensor("s", np.array([6])), tensor("z", np.array([0]))]),
    "permutation that is none": model([node("Transpose", "x", "y", perm=[0, 0])], [X], ["y"]),
    "stride 0": model([node("MaxPool", "i", "y", kernel_shape=[2, 2], strides=[0, 0])], [PICTURE], ["y"]),
    "kernel 0": model([node("MaxPool", "i", "y", kernel_shape=[0, 0])], [PICTURE], ["y"]),
    "kernel of one side": model([node("MaxPool", "i", "y", kernel_shape=[2])], [PICTURE], ["y"]),
    "groups 0": model([node("Conv", "i w", "y", group=0)], [PICTURE], ["y"],
                      [tensor("w", np.ones((1, 1, 2, 2), np.float32))]),
    "opset 0": model([node("Relu", "x", "y")], [X], ["y"], opset=0),
    "opset 2^40": model([node("Relu", "x", "y")], [X], ["y"], opset=2**40),
}  # fmt: skip
