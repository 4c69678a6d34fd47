"""Rules of ATen operations with products: matrices, attention, norms (torch_ops.py)."""

from __future__ import annotations

import math

from unsay.compiler.frontend.torch_builder import Builder
from unsay.compiler.frontend.torch_call import Call, Rule, rows
from unsay.compiler.ir.core import Value
from unsay.compiler.ir.dims import Extent
from unsay.errors import UnsupportedError


def _matmul(call: Call, to: Builder) -> Value:
    return to.emit("matmul", call.tensor("self"), call.tensor("mat2" if "mat2" in call else "other"))


def _linear(call: Call, to: Builder) -> Value:
    y = to.emit("matmul", call.tensor("input"), to.transpose(call.tensor("weight"), [1, 0]))
    return y if call["bias"] is None else to.emit("add", y, call.tensor("bias"))


def _addmm(call: Call, to: Builder) -> Value:
    call.need("beta", 1)
    call.need("alpha", 1)
    return to.emit("add", call.tensor("self"), to.emit("matmul", call.tensor("mat1"), call.tensor("mat2")))


def _sdpa(call: Call, to: Builder) -> Value:
    call.need("dropout_p", 0.0)
    q, k, v = (call.tensor(name) for name in ("query", "key", "value"))
    if call["enable_gqa"]:
        k, v = (_repeat_heads(to, x, q.type.dims[-3]) for x in (k, v))
    mask, scale = call["attn_mask"], call["scale"]
    if call["is_causal"]:
        mask = to.triangle((q.type.dims[-2], k.type.dims[-2]), "less_equal", 0)
    if scale is None:
        width = q.type.dims[-1]
        scale = 1 / math.sqrt(width) if isinstance(width, int) else call.refuse("heads of unknown size")
    return to.emit("sdpa", q, k, v, *([] if mask is None else [mask]), scale=float(scale))


def _repeat_heads(to: Builder, x: Value, num_heads: Extent) -> Value:
    """[.., K, S, D] -> [.., H, S, D]: each head H/K times in a row."""
    *batch, kv_heads, rows, width = x.type.dims
    if not isinstance(num_heads, int) or not isinstance(kv_heads, int):
        raise UnsupportedError("scaled_dot_product_attention with a number of heads that is not fixed")
    wide = to.reshape(x, (*batch, kv_heads, 1, rows, width))
    wide = to.broadcast(wide, (*batch, kv_heads, num_heads // kv_heads, rows, width))
    return to.reshape(wide, (*batch, num_heads, rows, width))


def _layer_norm(call: Call, to: Builder) -> Value:
    """Over the last dimension: (x - mean) / sqrt(var + eps) * weight + bias; rms_norm without mean and bias."""
    x, axes = call.tensor("input"), (-1,)
    if len(call["normalized_shape"]) != 1:
        call.refuse(f"normalized_shape {call['normalized_shape']}")
    if "cudnn_enable" in call:
        call["cudnn_enable"]
        x = to.emit("sub", x, to.emit("reduce_mean", x, axes=axes, keepdims=True))
    square = to.emit("reduce_mean", to.emit("mul", x, x), axes=axes, keepdims=True)
    eps = 2.0**-23 if call["eps"] is None else float(call["eps"])
    y = to.emit("mul", x, to.emit("rsqrt", to.emit("add", square, to.constant(eps, x.type.dtype))))
    for name, kind in (("weight", "mul"), ("bias", "add")):
        if name in call and call[name] is not None:
            y = to.emit(kind, y, call.tensor(name))
    return y


PRODUCTS: dict[str, Rule] = dict(
    [
        *rows(_matmul, "matmul", "mm", "bmm"),
        *rows(_linear, "linear"),
        *rows(_addmm, "addmm"),
        *rows(_sdpa, "scaled_dot_product_attention"),
        *rows(_layer_norm, "layer_norm", "rms_norm"),
    ]
)  # fmt: skip
