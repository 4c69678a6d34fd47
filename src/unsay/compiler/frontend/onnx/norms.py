"""Rules for ONNX operators that norm: over channels as they were trained, over rows, over pictures."""

from __future__ import annotations

from unsay.compiler.frontend.onnx.builder import Builder
from unsay.compiler.frontend.onnx.call import Call, axis_of
from unsay.compiler.frontend.onnx.rule import Rule, rule
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError, product
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType


def _batch_norm(call: Call) -> Value:
    if call.flag("training_mode") or call.int("spatial", 1) != 1:
        raise RefusalError("training_mode = 1 or spatial = 0")
    return call.builder.emit("batch_norm", *call.values(), eps=call.float("epsilon", 1e-5))


def _layer_norm(call: Call) -> Value:
    """c = x - mean(x), y = c / sqrt(mean(c * c) + eps) * scale + bias, in float32"""
    b, x = call.builder, _in_float32(call)
    axes = _trailing(call)
    centred = b.emit("sub", x, b.emit("reduce_mean", x, axes=axes, keepdims=True))
    y = b.cast(_normed(b, centred, axes, call.float("epsilon", 1e-5)), call.dtype(0))
    y = b.emit("mul", y, call.value(1))
    return b.emit("add", y, call.value(2)) if call.has(2) else y


def _rms_norm(call: Call) -> Value:
    """y = x / sqrt(mean(x * x) + eps) * scale, in float32"""
    b = call.builder
    y = _normed(b, _in_float32(call), _trailing(call), call.float("epsilon", 1e-5))
    return b.emit("mul", b.cast(y, call.dtype(0)), call.value(1))


def _in_float32(call: Call) -> Value:
    """The first input in the type a norm computes in (stash_type)."""
    if call.int("stash_type", 1) != 1:
        raise RefusalError(f"attribute stash_type = {call.int('stash_type', 1)}; 1 is supported")
    x = call.value(0)
    return x if x.type.dtype is DType.F64 else call.builder.cast(x, DType.F32)


def _trailing(call: Call) -> tuple[int, ...]:
    rank = len(call.shape(0))
    return tuple(range(axis_of(call.int("axis", -1), rank), rank))


def _normed(b: Builder, x: Value, axes: tuple[int, ...], eps: float) -> Value:
    square = b.emit("reduce_mean", b.emit("mul", x, x), axes=axes, keepdims=True)
    return b.emit("mul", x, b.emit("rsqrt", b.emit("add", square, b.number(eps, x))))


def _instance_norm(call: Call) -> Value:
    """Each channel of each picture by itself."""
    return _by_channel(call, call.shape(0)[1])


def _group_norm(call: Call) -> Value:
    """Groups of channels of each picture; before version 21 scale and bias were of groups."""
    if call.opset < 21:
        raise RefusalError("scale and bias of groups; those of channels (version 21) are supported")
    return _by_channel(call, call.int("num_groups", 1))


def _by_channel(call: Call, groups: AnySize) -> Value:
    """y = norm(x [N, groups, ..]) [N, C, ..] * scale [C] + bias [C], in float32"""
    b, sizes = call.builder, call.shape(0)
    if len(sizes) < 3 or not isinstance(groups, int) or groups < 1:
        raise RefusalError(f"{groups} groups of {sizes}")
    x = b.reshape(_in_float32(call), [sizes[0], groups, product(sizes[1:]) // groups])
    centred = b.emit("sub", x, b.emit("reduce_mean", x, axes=(2,), keepdims=True))
    y = b.reshape(_normed(b, centred, (2,), call.float("epsilon", 1e-5)), sizes)
    scale, bias = (b.reshape(call.value(index), [sizes[1], *[1] * (len(sizes) - 2)]) for index in (1, 2))
    return b.emit("add", b.emit("mul", b.cast(y, call.dtype(0)), scale), bias)


RULES: dict[str, Rule] = {
    "BatchNormalization": rule(_batch_norm, 5, "epsilon", "momentum", "training_mode", "spatial"),
    "LayerNormalization": rule(_layer_norm, (2, 3), "axis", "epsilon", "stash_type"),
    "RMSNormalization": rule(_rms_norm, 2, "axis", "epsilon", "stash_type"),
    "InstanceNormalization": rule(_instance_norm, 3, "epsilon"),
    "GroupNormalization": rule(_group_norm, 3, "epsilon", "num_groups", "stash_type"),
}
