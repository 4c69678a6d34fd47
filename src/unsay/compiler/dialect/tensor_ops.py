"""The tensor operations: what front ends make, with the meaning of NumPy. Rows of dialect/ops.py.

Shapes broadcast as in NumPy where an operation has several operands; negative axes count from the end. Arithmetic is
that of the element type. `weight`, `add`, `mul`, `silu` and `output` are step operations too.
"""

from __future__ import annotations

from unsay.compiler.dialect import neural_shapes as neural
from unsay.compiler.dialect import tensor_shapes as shapes
from unsay.compiler.dialect.op import INTS, NUMBERS, Attribute, Invariant, Op, Rule
from unsay.compiler.ir.types import DEVICES

_AXIS = (Attribute("axis", int),)
_REDUCE = (Attribute("axes", INTS), Attribute("keepdims", bool))
_STRIDES = Attribute("strides", INTS)
_PADS = Attribute("pads", INTS)
_DTYPE = Attribute("dtype", str, ("f32", "f16", "bf16", "f64", "i32", "i64", "i8", "bool"))
_EPS = (Invariant("eps > 0"),)
_SCALE = (Invariant("scale > 0"),)


def _unary(name: str, doc: str, *invariants: str, rule: Rule = shapes.unary) -> Op:
    family = "both" if name == "silu" else "tensor"
    return Op(name, ("x",), (), ("y",), rule, doc, (), invariants, family=family)


def _binary(name: str, doc: str, *invariants: str, rule: Rule = shapes.arithmetic) -> Op:
    family = "both" if name in ("add", "mul") else "tensor"
    return Op(name, ("a", "b"), (), ("y",), rule, doc, (), invariants, family=family)


def _compare(name: str, doc: str) -> Op:
    return _binary(name, doc, rule=shapes.comparison)


def _reduce(name: str, doc: str, *invariants: str, rule: Rule = shapes.reduction) -> Op:
    return Op(name, ("x",), _REDUCE, ("y",), rule, doc, (), invariants, family="tensor")


TENSOR_OPS: tuple[Op, ...] = (
    Op("input", (), (Attribute("name", str),), ("x",), None, "what the graph is run on, by name",
       (Invariant("name != ''"),), family="tensor"),
    Op("constant", (), (Attribute("value", NUMBERS, infinite=True),), ("y",), None,
       "numbers, row by row, or one for every element", check=shapes.constant, family="tensor"),
    Op("iota", (), _AXIS, ("y",), None, "0, 1, 2, ... along an axis", check=shapes.iota, family="tensor"),
    Op("size", (), (Attribute("dim", str),), ("y",), shapes.size, "the size of a dimension", family="tensor"),
    Op("output", ("x...",), (), (), shapes.output, "the results of the graph, in order; of a step: its logits",
       pure=False, family="both"),
    _unary("neg", "y = -x", rule=shapes.signed),
    _unary("abs", "y = |x|", "y >= 0", rule=shapes.signed),
    _unary("exp", "y = e^x", "y >= 0"),
    _unary("log", "y = ln x"),
    _unary("sqrt", "y = x^(1/2)", "y >= 0"),
    _unary("rsqrt", "y = 1 / sqrt(x)", "y >= 0"),
    _unary("reciprocal", "y = 1 / x"),
    _unary("sin", "y = sin x", "abs(y) <= 1"),
    _unary("cos", "y = cos x", "abs(y) <= 1"),
    _unary("tanh", "y = tanh x", "abs(y) <= 1"),
    _unary("erf", "y = 2 / sqrt(pi) * integral of exp(-t*t) from 0 to x", "abs(y) <= 1"),
    _unary("sigmoid", "y = 1 / (1 + exp(-x))", "y >= 0", "y <= 1"),
    _unary("relu", "y = max(x, 0)", "y >= 0"),
    _unary("silu", "y = x / (1 + exp(-x)) (N10)", "y >= -0.2784645427610738"),
    Op("gelu", ("x",), (Attribute("approximate", str, ("none", "tanh")),), ("y",), shapes.unary,
       "y = x/2 * (1 + erf(x / sqrt 2)), or x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))",
       (), ("y >= -0.1704",), family="tensor"),
    _unary("floor", "y = the greatest integer that is at most x", "y <= x", rule=shapes.unary),
    _unary("not", "y = not x", rule=shapes.logical_not),
    Op("cast", ("x",), (_DTYPE,), ("y",), shapes.cast,
       "y = x as dtype: floats to integers towards 0, anything but 0 is true", family="tensor"),
    _binary("add", "y = a + b"),
    _binary("sub", "y = a - b"),
    _binary("mul", "y = a * b"),
    _binary("div", "y = a / b", rule=shapes.real_arithmetic),
    _binary("pow", "y = a^b", rule=shapes.real_arithmetic),
    _binary("maximum", "y = the greater of a and b", "y >= a", "y >= b"),
    _binary("minimum", "y = the lesser of a and b", "y <= a", "y <= b"),
    _compare("equal", "y = (a == b)"),
    _compare("less", "y = (a < b)"),
    _compare("less_equal", "y = (a <= b)"),
    _compare("greater", "y = (a > b)"),
    _compare("greater_equal", "y = (a >= b)"),
    _binary("and", "y = a and b", rule=shapes.logical),
    _binary("or", "y = a or b", rule=shapes.logical),
    Op("select", ("condition", "a", "b"), (), ("y",), shapes.select, "y = a where the condition holds, else b",
       family="tensor"),
    Op("matmul", ("a", "b"), (), ("y",), neural.matmul, "y[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]",
       family="tensor"),
    Op("transpose", ("x",), (Attribute("perm", INTS),), ("y",), shapes.transpose,
       "dimension i of y is dimension perm[i] of x", family="tensor"),
    Op("reshape", ("x",), (), ("y",), None, "the elements of x, in order, in another shape", check=shapes.reshape,
       family="tensor"),
    Op("broadcast_to", ("x",), (), ("y",), None, "x repeated to a shape", check=shapes.broadcast_to, family="tensor"),
    Op("concat", ("x...",), _AXIS, ("y",), shapes.concat, "tensors one after the other along an axis", family="tensor"),
    Op("slice", ("x",), (*_AXIS, Attribute("start", int), Attribute("stop", int), Attribute("step", int)), ("y",),
       shapes.slice_, "x[start:stop:step] along an axis, as in Python", (Invariant("step > 0"),), family="tensor"),
    Op("gather", ("x", "indices"), _AXIS, ("y",), shapes.gather,
       "x[.., indices, ..]: the elements of x at indices along an axis; -1 is the last", family="tensor"),
    _reduce("reduce_sum", "y = the sum over axes"),
    _reduce("reduce_mean", "y = the mean over axes", rule=shapes.mean),
    _reduce("reduce_max", "y = the greatest over axes"),
    _reduce("reduce_min", "y = the least over axes"),
    Op("argmax", ("x",), _AXIS, ("y",), shapes.argmax, "where the greatest is along an axis; the first, if several",
       (), ("y >= 0",), family="tensor"),
    Op("softmax", ("x",), _AXIS, ("y",), neural.along_axis,
       "y = e / sum(e) with e = exp(x - max(x)), along an axis", (), ("y >= 0", "y <= 1", "sum(y, axis) == 1"),
       family="tensor"),
    Op("cumsum", ("x",), _AXIS, ("y",), shapes.cumsum, "y[i] = x[0] + ... + x[i] along an axis", family="tensor"),
    Op("conv2d", ("x", "w", "bias?"),
       (_STRIDES, _PADS, Attribute("dilations", INTS), Attribute("groups", int)), ("y",), neural.conv2d,
       "y[n, o, h, w] = bias[o] + sum over c, i, j of x[n, c, h*stride + i*dilation - pad, ..] * w[o, c, i, j], each "
       "group of outputs over its group of channels; 0 outside; pads are top, left, bottom, right",
       (Invariant("groups > 0"),), family="tensor"),
    Op("max_pool2d", ("x",), (Attribute("kernel", INTS), _STRIDES, _PADS), ("y",), neural.pool2d,
       "y = the greatest of each window of x[n, c], borders left out", family="tensor"),
    Op("average_pool2d", ("x",), (Attribute("kernel", INTS), _STRIDES, _PADS), ("y",), neural.pool2d,
       "y = the mean of each window of x[n, c], borders left out", family="tensor"),
    Op("batch_norm", ("x", "scale", "bias", "mean", "var"), (Attribute("eps", float),), ("y",), neural.batch_norm,
       "y = (x - mean) / sqrt(var + eps) * scale + bias, each channel", _EPS, family="tensor"),
    Op("pad", ("x",), (_PADS, Attribute("value", float, infinite=True)), ("y",), shapes.pad,
       "x in a border of value; pads are those before each dimension, then those after", family="tensor"),
    Op("sdpa", ("q", "k", "v", "mask?"), (Attribute("scale", float),), ("y",), neural.sdpa,
       "y = p v with p = softmax(scale * q k^T + mask); a bool mask keeps what is true; a row of nothing is 0",
       _SCALE, family="tensor"),
    Op("reorder", ("x",), (Attribute("layout", str),), ("y",), shapes.reorder, "x, in memory in another order",
       (), ("y == x",), family="tensor"),
    Op("transfer", ("x",), (Attribute("device", str, tuple(sorted(DEVICES))),), ("y",), shapes.transfer,
       "x, in the memory of another device", (), ("y == x",), family="tensor"),
)  # fmt: skip
