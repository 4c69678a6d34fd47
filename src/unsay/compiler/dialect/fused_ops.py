"""The fused tensor operations: what passes make of tensor operations best done at once. Rows of dialect/ops.py.

Each `doc` is an equation: the operation computes what is on its right, in one walk over memory.
"""

from __future__ import annotations

from unsay.compiler.dialect import neural_shapes as shapes
from unsay.compiler.dialect.op import INTS, Attribute, Invariant, Op

FUSED_TENSOR_OPS: tuple[Op, ...] = (
    Op("conv2d_relu", ("x", "w", "bias?"),
       (Attribute("strides", INTS), Attribute("pads", INTS), Attribute("dilations", INTS), Attribute("groups", int)),
       ("y",), shapes.conv2d, "y = relu(conv2d(x, w, bias))",
       (Invariant("groups > 0"),), ("y >= 0",), fused=True, family="tensor"),
    Op("matmul_silu", ("a", "b", "bias?"), (), ("y",), shapes.matmul_bias, "y = silu(matmul(a, b) + bias)",
       (), ("y >= -0.2784645427610738",), fused=True, family="tensor"),
    Op("add_rms_norm", ("a", "b", "gamma"), (Attribute("eps", float), Attribute("output", str, ("f32", "q8w"))),
       ("sum", "y"), shapes.add_rms_norm, "sum = a + b, y = rms_norm(sum, gamma) {eps, output}",
       (Invariant("eps > 0"),), fused=True, family="tensor"),
)  # fmt: skip
