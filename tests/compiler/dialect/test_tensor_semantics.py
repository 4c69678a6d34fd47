"""Every tensor operation against PyTorch: its shape rule, its meaning on floats, and its invariants."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from tests.compiler.dialect.run_op import graph_of, operand
from unsay.compiler.dialect.invariants import holds
from unsay.compiler.dialect.ops import BY_NAME, OPS
from unsay.compiler.dialect.verifier import verify
from unsay.compiler.ir.core import AttributeValue
from unsay.compiler.ir.evaluate import evaluate

_Case = tuple[str, list[np.ndarray], dict[str, AttributeValue], Callable[..., Any]]

x = operand(2, 3, 4)
_POSITIVE = np.abs(x) + 0.1
_IMAGE = operand(2, 4, 7, 6)
_INTS = np.array([[3, -1, 2], [0, 5, -7]], np.int64)
_WHERE = x > 0.3


_POOL: dict[str, AttributeValue] = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 0)}
_CONV: dict[str, AttributeValue] = {"strides": (2, 1), "pads": (1, 2, 1, 2), "dilations": (1, 2), "groups": 2}

CASES: list[_Case] = [
    ("neg", [x], {}, torch.neg),
    ("neg", [_INTS], {}, torch.neg),
    ("abs", [x], {}, torch.abs),
    ("exp", [x], {}, torch.exp),
    ("log", [_POSITIVE], {}, torch.log),
    ("sqrt", [_POSITIVE], {}, torch.sqrt),
    ("rsqrt", [_POSITIVE], {}, torch.rsqrt),
    ("reciprocal", [_POSITIVE], {}, torch.reciprocal),
    ("sin", [x], {}, torch.sin),
    ("cos", [x], {}, torch.cos),
    ("tanh", [x], {}, torch.tanh),
    ("erf", [x], {}, torch.erf),
    ("sigmoid", [x * 30], {}, torch.sigmoid),
    ("relu", [x], {}, torch.relu),
    ("silu", [x], {}, F.silu),
    ("gelu", [x], {"approximate": "none"}, F.gelu),
    ("gelu", [x], {"approximate": "tanh"}, lambda a: F.gelu(a, approximate="tanh")),
    ("floor", [x * 3], {}, torch.floor),
    ("not", [_WHERE], {}, torch.logical_not),
    ("cast", [x * 9], {"dtype": "i32"}, lambda a: a.to(torch.int32)),
    ("cast", [x], {"dtype": "f16"}, lambda a: a.to(torch.float16)),
    ("cast", [x], {"dtype": "bf16"}, lambda a: a.to(torch.bfloat16).float()),
    ("cast", [x], {"dtype": "f64"}, lambda a: a.double()),
    ("cast", [_INTS], {"dtype": "bool"}, lambda a: a.bool()),
    ("cast", [_WHERE], {"dtype": "f32"}, lambda a: a.float()),
    ("add", [x, operand(3, 1)], {}, torch.add),
    ("add", [_INTS, np.array(4)], {}, torch.add),
    ("sub", [x, operand(4)], {}, torch.sub),
    ("mul", [operand(2, 1, 4), x], {}, torch.mul),
    ("div", [x, _POSITIVE], {}, torch.div),
    ("pow", [_POSITIVE, x], {}, torch.pow),
    ("maximum", [x, operand(4)], {}, torch.maximum),
    ("minimum", [x, operand(4)], {}, torch.minimum),
    ("equal", [_INTS, np.array([3, 5, 2])], {}, torch.eq),
    ("less", [x, operand(4)], {}, torch.lt),
    ("less_equal", [_INTS, np.array([3, 5, 2])], {}, torch.le),
    ("greater", [x, operand(4)], {}, torch.gt),
    ("greater_equal", [_INTS, np.array([3, 5, 2])], {}, torch.ge),
    ("and", [_WHERE, x < 0.6], {}, torch.logical_and),
    ("or", [_WHERE, x < 0], {}, torch.logical_or),
    ("select", [_WHERE, x, operand(4)], {}, torch.where),
    ("matmul", [operand(2, 1, 3, 4), operand(5, 4, 6)], {}, torch.matmul),
    ("transpose", [x], {"perm": (2, 0, 1)}, lambda a: a.permute(2, 0, 1)),
    ("concat", [x, operand(2, 5, 4), x], {"axis": -2}, lambda *a: torch.cat(a, 1)),
    ("slice", [x], {"axis": 2, "start": -3, "stop": 99, "step": 2}, lambda a: a[:, :, -3::2]),
    ("slice", [x], {"axis": 1, "start": 1, "stop": -1, "step": 1}, lambda a: a[:, 1:-1]),
    ("gather", [x, np.array([[2, 0], [1, -1]])], {"axis": 1}, lambda a, i: a[:, i]),
    ("reduce_sum", [x], {"axes": (0, -1), "keepdims": True}, lambda a: a.sum((0, 2), keepdim=True)),
    ("reduce_sum", [_INTS], {"axes": (1,), "keepdims": False}, lambda a: a.sum(1)),
    ("reduce_mean", [x], {"axes": (-1,), "keepdims": False}, lambda a: a.mean(-1)),
    ("reduce_max", [x], {"axes": (0, 2), "keepdims": False}, lambda a: a.amax((0, 2))),
    ("reduce_min", [x], {"axes": (1,), "keepdims": True}, lambda a: a.amin(1, keepdim=True)),
    ("argmax", [np.round(x)], {"axis": 2}, lambda a: a.argmax(2)),
    ("softmax", [x * 20], {"axis": 1}, lambda a: a.softmax(1)),
    ("cumsum", [x], {"axis": -1}, lambda a: a.cumsum(-1)),
    ("conv2d", [_IMAGE, operand(6, 2, 3, 2), operand(6)], _CONV,
     lambda a, w, b: F.conv2d(a, w, b, (2, 1), (1, 2), (1, 2), 2)),
    ("conv2d_relu", [_IMAGE, operand(6, 2, 3, 2), operand(6)], _CONV,
     lambda a, w, b: F.conv2d(a, w, b, (2, 1), (1, 2), (1, 2), 2).relu()),
    ("max_pool2d", [_IMAGE - 5], _POOL, lambda a: F.max_pool2d(a, (3, 2), (2, 1), (1, 0))),
    ("average_pool2d", [_IMAGE], _POOL, lambda a: F.avg_pool2d(a, (3, 2), (2, 1), (1, 0), count_include_pad=False)),
    ("batch_norm", [_IMAGE, *(operand(4) for _ in range(3)), np.abs(operand(4))], {"eps": 1e-3},
     lambda a, s, b, m, v: F.batch_norm(a, m, v, s, b, False, 0.0, 1e-3)),
    ("pad", [x], {"pads": (0, 1, 2, 0, 0, 3), "value": -math.inf}, lambda a: F.pad(a, (2, 3, 1, 0), value=-math.inf)),
    ("sdpa", [operand(2, 3, 5, 8), operand(2, 3, 6, 8), operand(2, 3, 6, 4)], {"scale": 0.3},
     lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3)),
    ("sdpa", [operand(2, 3, 5, 8), operand(2, 3, 6, 8), operand(2, 3, 6, 4), operand(3, 1, 6)], {"scale": 0.3},
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m.expand(2, 3, 5, 6), scale=0.3)),
    ("sdpa", [operand(2, 5, 8), operand(2, 6, 8), operand(2, 6, 4), np.tri(5, 6, dtype=np.bool_)], {"scale": 0.3},
     lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m, scale=0.3)),
    ("reorder", [_IMAGE], {"layout": "nhwc"}, lambda a: a),
    ("transfer", [x], {"device": "gpu"}, lambda a: a),
    ("matmul_silu", [operand(3, 4), operand(4, 5), operand(5)], {}, lambda a, b, c: F.silu(a @ b + c)),
    ("add_rms_norm", [x, operand(2, 3, 4), operand(4)], {"eps": 1e-2, "output": "f32"},
     lambda a, b, g: (a + b, F.rms_norm(a + b, (4,), g, 1e-2))),
]  # fmt: skip

_WITH_INVARIANTS = [case for case in CASES if BY_NAME[case[0]].value_invariants]
_WITH_INVARIANTS_IDS = [case[0] for case in _WITH_INVARIANTS]
_DECLARED = {"input", "constant", "iota", "size", "output", "reshape", "broadcast_to"}
"""Tested in test_tensor_shapes.py and tests/compiler/ir/test_evaluate.py."""


@pytest.mark.parametrize(("kind", "operands", "attributes", "theirs"), CASES, ids=[case[0] for case in CASES])
def test_an_operation_is_that_of_torch(
    kind: str, operands: list[np.ndarray], attributes: dict[str, AttributeValue], theirs: Callable[..., Any]
):
    graph = graph_of(kind, operands, attributes)
    verify(graph)
    ours = evaluate(graph, {f"x{index}": array for index, array in enumerate(operands)}, {})
    expected = theirs(*map(torch.from_numpy, operands))
    for mine, other in zip(ours, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert mine.shape == other.shape and mine.dtype == other.numpy().dtype
        np.testing.assert_allclose(mine, other.numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("kind", "operands", "attributes", "theirs"), _WITH_INVARIANTS, ids=_WITH_INVARIANTS_IDS)
def test_invariants_hold_and_refuse_other_results(
    kind: str, operands: list[np.ndarray], attributes: dict[str, AttributeValue], theirs: Callable[..., Any]
):
    op = BY_NAME[kind]
    (y,) = evaluate(graph_of(kind, operands, attributes), {f"x{i}": array for i, array in enumerate(operands)}, {})
    names = {**dict(zip(op.operands, operands, strict=False)), **attributes}
    for invariant in op.value_invariants:
        assert holds(invariant, {**names, "y": y})
        assert not all(holds(invariant, {**names, "y": wrong}) for wrong in (y - 9, y + 9))


def test_every_tensor_operation_is_compared():
    compared = {kind for kind, *_ in CASES}
    assert compared == {op.name for op in OPS if op.family == "tensor"} - _DECLARED | {"add", "mul", "silu"}
