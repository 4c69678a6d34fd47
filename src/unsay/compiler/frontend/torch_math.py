"""Rules of ATen operations that compute element by element, and of reductions (torch_ops.py)."""

from __future__ import annotations

from unsay.compiler.frontend.torch_builder import Builder, common_dtype
from unsay.compiler.frontend.torch_call import Call, Rule, rows
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType


def _unary(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        return to.emit(kind, to.cast(call.tensor("self"), call.result.dtype))

    return rule


def _binary(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        dtype = call.result.dtype
        a, b = to.operand(call["self"], dtype), to.operand(call["other"], dtype)
        if "alpha" in call and call["alpha"] != 1:
            b = to.emit("mul", to.scalar(call["alpha"], dtype), b)
        return to.emit(kind, b, a) if call.name.startswith("aten.rsub") else to.emit(kind, a, b)

    return rule


def _compare(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        dtype = common_dtype([call["self"], call["other"]])
        y = to.emit(kind, to.operand(call["self"], dtype), to.operand(call["other"], dtype))
        return to.emit("not", y) if call.name.startswith("aten.ne.") else y

    return rule


def _logical(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        if call.result.dtype is not DType.BOOL:
            call.refuse("integers")
        return to.emit(kind, to.operand(call["self"], DType.BOOL), to.operand(call["other"], DType.BOOL))

    return rule


def _not(call: Call, to: Builder) -> Value:
    if call.result.dtype is not DType.BOOL:
        call.refuse("integers")
    return to.emit("not", to.cast(call.tensor("self"), DType.BOOL))


def _pow(call: Call, to: Builder) -> Value:
    dtype, exponent = call.result.dtype, call["exponent"]
    base = to.operand(call["self"], dtype)
    if isinstance(exponent, int | float) and exponent == 2:
        return to.emit("mul", base, base)
    return to.emit("pow", base, to.operand(exponent, dtype))


def _gelu(call: Call, to: Builder) -> Value:
    return to.emit("gelu", call.tensor("self"), approximate=call["approximate"])


def _clamp(call: Call, to: Builder) -> Value:
    x = to.cast(call.tensor("self"), call.result.dtype)
    for name, kind in (("min", "maximum"), ("max", "minimum")):
        if call[name] is not None:
            x = to.emit(kind, x, to.operand(call[name], call.result.dtype))
    return x


def _same(call: Call, to: Builder) -> Value:
    """The same value, maybe in another element type."""
    x = call.tensor("input" if "input" in call else "self")
    return to.cast(x, call.result.dtype)


def _type_as(call: Call, to: Builder) -> Value:
    call["other"]
    return _same(call, to)


def _dropout(call: Call, to: Builder) -> Value:
    trains, probability = call["train"], call["p"]
    if trains and probability != 0:
        call.refuse("training: export the model after .eval()")
    return _same(call, to)


def _where(call: Call, to: Builder) -> Value:
    a, b = (to.operand(call[name], call.result.dtype) for name in ("self", "other"))
    return to.emit("select", call.tensor("condition"), a, b)


def _masked_fill(call: Call, to: Builder) -> Value:
    x = call.tensor("self")
    return to.emit("select", call.tensor("mask"), to.operand(call["value"], x.type.dtype), x)


def _nothing(call: Call, _to: Builder) -> None:
    """A check torch makes while it runs, of what its types say already."""
    for name in ("a", "size", "stride"):
        if name in call:
            call[name]


def _reduce(kind: str) -> Rule:
    def rule(call: Call, to: Builder) -> Value:
        x = to.cast(call.tensor("self"), call.result.dtype)
        axes = call.axes("dim", x.type.rank) if "dim" in call else tuple(range(x.type.rank))
        keepdims = bool(call["keepdim"]) if "keepdim" in call else False
        return to.emit(kind, x, axes=axes, keepdims=keepdims)

    return rule


def _any(call: Call, to: Builder) -> Value:
    """Whether any is true; all: the same of the least instead of the greatest."""
    x = to.cast(to.cast(call.tensor("self"), DType.BOOL), DType.I32)
    axes = call.axes("dim", x.type.rank) if "dim" in call else tuple(range(x.type.rank))
    keepdims = bool(call["keepdim"]) if "keepdim" in call else False
    kind = "reduce_max" if call.name.startswith("aten.any") else "reduce_min"
    return to.cast(to.emit(kind, x, axes=axes, keepdims=keepdims), DType.BOOL)


def _argmax(call: Call, to: Builder) -> Value:
    x, dim = call.tensor("self"), call["dim"]
    if dim is None:
        call.refuse("no dim")
    y = to.emit("argmax", x, axis=call.axis("dim", x.type.rank))
    return to.reshape(y, call.result.dims) if call["keepdim"] else y


def _softmax(call: Call, to: Builder) -> Value:
    if "half_to_float" in call:
        call["half_to_float"]
    x = to.cast(call.tensor("self"), call.result.dtype)
    return to.emit("softmax", x, axis=call.axis("dim", x.type.rank))


def _cumsum(call: Call, to: Builder) -> Value:
    x = to.cast(call.tensor("self"), call.result.dtype)
    return to.emit("cumsum", x, axis=call.axis("dim", x.type.rank))


MATH: dict[str, Rule] = dict(
    [
        *((f"aten.{name}.default", _unary(name)) for name in (
            "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "sigmoid", "relu",
            "silu", "floor",
        )),
        *rows(_gelu, "gelu"),
        *rows(_clamp, "clamp", "clamp.Tensor", "clamp_min", "clamp_max"),
        *rows(_binary("add"), "add.Tensor", "add.Scalar"),
        *rows(_binary("sub"), "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar"),
        *rows(_binary("mul"), "mul.Tensor", "mul.Scalar"),
        *rows(_binary("div"), "div.Tensor", "div.Scalar"),
        *rows(_binary("maximum"), "maximum"),
        *rows(_binary("minimum"), "minimum"),
        *rows(_pow, "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
        *rows(_compare("equal"), "eq.Tensor", "eq.Scalar", "ne.Tensor", "ne.Scalar"),
        *rows(_compare("less"), "lt.Tensor", "lt.Scalar"),
        *rows(_compare("less_equal"), "le.Tensor", "le.Scalar"),
        *rows(_compare("greater"), "gt.Tensor", "gt.Scalar"),
        *rows(_compare("greater_equal"), "ge.Tensor", "ge.Scalar"),
        *rows(_logical("and"), "logical_and", "bitwise_and.Tensor", "__and__.Tensor"),
        *rows(_logical("or"), "logical_or", "bitwise_or.Tensor", "__or__.Tensor"),
        *rows(_not, "logical_not", "bitwise_not"),
        *rows(_where, "where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar"),
        *rows(_masked_fill, "masked_fill.Scalar", "masked_fill.Tensor"),
        *rows(_same, "_to_copy", "to.dtype", "to.dtype_layout", "to.device", "clone", "contiguous", "alias", "detach",
               "detach_", "lift_fresh_copy"),
        *rows(_type_as, "type_as", "to.other"),
        *rows(_dropout, "dropout"),
        *rows(_nothing, "_assert_tensor_metadata"),
        *rows(_reduce("reduce_mean"), "mean", "mean.dim"),
        *rows(_reduce("reduce_sum"), "sum", "sum.dim_IntList"),
        *rows(_reduce("reduce_max"), "amax", "max"),
        *rows(_reduce("reduce_min"), "amin", "min"),
        *rows(_any, "any", "any.dim", "any.dims", "all", "all.dim", "all.dims"),
        *rows(_argmax, "argmax"),
        *rows(_softmax, "softmax.int", "_softmax", "_safe_softmax"),
        *rows(_cumsum, "cumsum"),
    ]
)  # fmt: skip
