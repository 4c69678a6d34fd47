"""Rules for ONNX's operators of transformers: attention, and the rotation of queries and keys by their positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from unsay.compiler.frontend.onnx.call import Call, fixed
from unsay.compiler.frontend.onnx.rule import Rule, rule
from unsay.compiler.frontend.onnx.sizes import AnySize, RefusalError
from unsay.compiler.ir.core import Value
from unsay.isa.formats import DType


def _attention(call: Call) -> tuple[Value, ...]:
    """softmax(scale * q k^T + mask) v; heads of k and v are repeated for the groups of q"""
    b = call.builder
    if any(call.has(index) for index in (4, 5, 6)):
        raise RefusalError("inputs past_key, past_value and nonpad_kv_seqlen")
    if call.float("softcap", 0.0) or call.int("qk_matmul_output_mode", 0) or call.int("softmax_precision", 1) != 1:
        raise RefusalError("attributes softcap, qk_matmul_output_mode and softmax_precision must be left out")
    is_flat = len(call.shape(0)) == 3
    heads = call.int("q_num_heads", 0), call.int("kv_num_heads", 0)
    q, k, v = (_heads(call, index, heads[index > 0]) for index in range(3))
    k, v = (_repeated(call, x, call.sizes_of(q)[1]) for x in (k, v))
    width = fixed(call.sizes_of(q)[3:])[0]
    mask = [_mask(call, call.sizes_of(q)[2], call.sizes_of(k)[2])] if call.has(3) or call.flag("is_causal") else []
    y = b.emit("sdpa", q, k, v, *mask, scale=call.float("scale", 1 / math.sqrt(width)))
    if not is_flat:
        return (y,)
    batch, num_heads, rows, columns = call.sizes_of(y)
    return (b.reshape(b.emit("transpose", y, perm=(0, 2, 1, 3)), [batch, rows, num_heads * columns]),)


def _heads(call: Call, index: int, heads: int) -> Value:
    """[B, T, H*D] -> [B, H, T, D]; four dimensions are that already"""
    b, sizes = call.builder, call.shape(index)
    if len(sizes) == 4:
        return call.value(index)
    if len(sizes) != 3 or heads < 1:
        raise RefusalError(f"input {index} of {len(sizes)} dimensions and {heads} heads")
    return b.emit("transpose", b.reshape(call.value(index), [*sizes[:2], heads, sizes[2] // heads]), perm=(0, 2, 1, 3))


def _repeated(call: Call, x: Value, heads: AnySize) -> Value:
    """Each head as often as the groups of q need it."""
    b, (batch, own, rows, columns) = call.builder, call.sizes_of(x)
    if own == heads:
        return x
    whole = b.broadcast(b.reshape(x, [batch, own, 1, rows, columns]), [batch, own, heads // own, rows, columns])
    return b.reshape(whole, [batch, heads, rows, columns])


def _mask(call: Call, rows: AnySize, columns: AnySize) -> Value:
    b = call.builder
    if not call.flag("is_causal"):
        return call.value(3)
    causal = b.emit("less_equal", b.iota([rows, columns], 1), b.iota([rows, columns], 0))
    if not call.has(3):
        return causal
    given = call.value(3)
    if given.type.dtype is DType.BOOL:
        return b.emit("and", given, causal)
    return b.emit("select", causal, given, b.number(-math.inf, given))


def _rotary_embedding(call: Call) -> Value:
    """(a, b) -> (cos * a - sin * b, sin * a + cos * b) for the pairs of every head; x is [B, H, T, D] or [B, T, H*D]"""
    b, sizes, heads = call.builder, call.shape(0), call.int("num_heads", 0)
    if (len(sizes) == 3 and heads < 1) or len(sizes) not in (3, 4):
        raise RefusalError(f"input 0 of {len(sizes)} dimensions and {heads} heads")
    x = b.reshape(call.value(0), [*sizes[:2], heads, sizes[2] // heads]) if len(sizes) == 3 else call.value(0)
    (width,) = fixed(call.sizes_of(x)[3:])
    turned = call.int("rotary_embedding_dim", 0) or width
    if turned % 2 or not 0 < turned <= width:
        raise RefusalError(f"attribute rotary_embedding_dim = {turned} of heads of {width}")
    cos, sin = (_by_position(call, index, len(sizes) == 4) for index in (1, 2))
    first, second = _pairs(call, x, turned)
    real = b.emit("sub", b.emit("mul", cos, first), b.emit("mul", sin, second))
    imaginary = b.emit("add", b.emit("mul", sin, first), b.emit("mul", cos, second))
    y = _joined(call, real, imaginary, turned)
    if turned < width:
        y = b.emit("concat", y, b.emit("slice", x, axis=3, start=turned, stop=width, step=1), axis=3)
    return b.reshape(y, sizes)


def _by_position(call: Call, index: int, heads_first: bool) -> Value:
    """The cosines or sines of each row of x, one for all heads: [B, 1, T, D/2] or [B, T, 1, D/2]"""
    b, table = call.builder, call.value(index)
    if call.has(3):
        table = b.emit("gather", table, call.value(3), axis=0)
    sizes = call.sizes_of(table)
    if len(sizes) != 3:
        raise RefusalError(f"input {index} of {len(sizes)} dimensions where 3 are needed")
    shape: Sequence[AnySize] = [sizes[0], 1, *sizes[1:]] if heads_first else [*sizes[:2], 1, sizes[2]]
    return b.reshape(table, shape)


def _pairs(call: Call, x: Value, turned: int) -> tuple[Value, Value]:
    """The first and the second of each pair: even and odd places if interleaved, else the two halves."""
    b = call.builder
    if call.flag("interleaved"):
        first, second = (b.emit("slice", x, axis=3, start=side, stop=turned, step=2) for side in (0, 1))
    else:
        half = turned // 2
        first, second = (b.emit("slice", x, axis=3, start=s, stop=s + half, step=1) for s in (0, half))
    return first, second


def _joined(call: Call, first: Value, second: Value, turned: int) -> Value:
    b = call.builder
    if not call.flag("interleaved"):
        return b.emit("concat", first, second, axis=3)
    sizes = call.sizes_of(first)
    sides = [b.reshape(side, [*sizes, 1]) for side in (first, second)]
    return b.reshape(b.emit("concat", *sides, axis=4), [*sizes[:3], turned])


RULES: dict[str, Rule] = {
    "Attention": rule(
        _attention, (3, 7), "is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap",
        "softmax_precision",
    ),
    "RotaryEmbedding": rule(_rotary_embedding, (3, 4), "interleaved", "num_heads", "rotary_embedding_dim"),
}  # fmt: skip
