"""The step operations: what the engine runs, from tokens to logits. Rows of dialect/ops.py."""

from __future__ import annotations

from unsay.compiler.dialect import shapes
from unsay.compiler.dialect.op import Attribute, Invariant, Op

_HEADS = (Attribute("num_heads", int), Attribute("head_dim", int))
_KV_HEADS = (Attribute("num_heads", int), Attribute("num_kv_heads", int), Attribute("head_dim", int))
_ROPE = (Attribute("base", float), Attribute("pairing", str, ("adjacent", "halves")))
_OUTPUT = Attribute("output", str, ("f32", "q8a"))
_WIDE_OUTPUT = Attribute("output", str, ("f32", "q8w"))
_NORM = (Attribute("eps", float), _WIDE_OUTPUT)

_EPS = (Invariant("eps > 0"),)
_ROTATES = (Invariant("head_dim > 0 and head_dim % 2 == 0"), Invariant("num_heads > 0"), Invariant("base > 1"))
_GROUPS = (
    Invariant("num_kv_heads > 0 and num_heads % num_kv_heads == 0"),
    Invariant("head_dim > 0 and head_dim % 2 == 0"),
)

STEP_OPS: tuple[Op, ...] = (
    Op("weight", (), (Attribute("tensor", str),), ("w",), None,
       "a tensor of the model file, by its name there; matrices are [N, K], vectors f32",
       (Invariant("tensor != ''"),), family="both"),
    Op("tokens", (), (), ("ids",), shapes.tokens, "ids of the step's tokens"),
    Op("embed", ("ids", "w"), (), ("x",), shapes.embed, "x[t] = w[ids[t]] (N11)"),
    Op("rms_norm", ("x", "gamma"), _NORM, ("y",), shapes.rms_norm,
       "n = x / sqrt(mean(x*x) + eps), y = n * gamma, each row (N7)", _EPS, ("mean(n * n, axis=-1) <= 1",),
       family="both"),
    Op("layer_norm", ("x", "gamma", "beta?"), _NORM, ("y",), shapes.layer_norm,
       "c = x - mean(x), n = c / sqrt(mean(c*c) + eps), y = n * gamma + beta, each row (N7)", _EPS,
       ("mean(n * n, axis=-1) <= 1", "mean(n, axis=-1) == 0"), family="both"),
    Op("linear", ("x", "w", "bias?"), (), ("y",), shapes.linear, "y = w x + bias (N4 or N5, N6)"),
    Op("rope", ("x",), (*_HEADS, *_ROPE), ("y",), shapes.rope,
       "rotate the pairs of every head by the token's position: pairs (2i, 2i+1) if adjacent, (i, i + D/2) if halves; "
       "a paired layout has made the latter adjacent (N8)", _ROTATES,
       ("sum(y * y, axis=-1) == sum(x * x, axis=-1)",), in_place=0),
    Op("attention", ("q", "k", "v"), (Attribute("layer", int), *_KV_HEADS, Attribute("scale", float), _OUTPUT), ("y",),
       shapes.attention,
       "append k, v to the cache of `layer`, then y = p V with p = softmax(scale * q K) over the token's own past (N9)",
       (*_GROUPS, Invariant("scale > 0"), Invariant("layer >= 0"), Invariant("output == 'f32' or head_dim % 32 == 0")),
       ("p >= 0", "sum(p, axis=-1) == 1", "min(V) <= y", "y <= max(V)"), pure=False),
    Op("quantise", ("x",), (Attribute("output", str, ("q8a", "q8w")),), ("y",), shapes.quantise,
       "y = x in blocks of 32, integers q up to most = 127 and an f32 scale (N3); 16256 in a wide one of q8w (N3w)",
       (), ("abs(q) <= most", "abs(x - q * scale) <= scale / 2"), family="both"),
    Op("select_rows", ("x",), (), ("y",), shapes.select_rows, "y = the rows of x whose logits are wanted"),
    Op("qkv", ("x", "wq", "wk", "wv", "bq?", "bk?", "bv?"), (*_KV_HEADS, *_ROPE), ("q", "k", "v"), shapes.qkv,
       "q = rope(linear(x, wq, bq)), k = rope(linear(x, wk, bk)), v = linear(x, wv, bv); one weight format",
       (*_GROUPS, Invariant("base > 1")), fused=True),
    Op("linear_add", ("residual", "x", "w", "bias?"), (), ("y",), shapes.linear_add,
       "y = residual + linear(x, w, bias) (N6)", in_place=0, fused=True),
    Op("silu_mul", ("gate", "up"), (_WIDE_OUTPUT,), ("y",), shapes.silu_mul, "y = silu(gate) * up (N10)", fused=True),
    Op("ffn", ("residual", "x", "gate", "up", "down"), (Attribute("hidden", str, ("f32", "q8w")),), ("y",), shapes.ffn,
       "y = residual + linear(silu_mul(linear(x, gate), linear(x, up)), down) (N10); gate and up of one format",
       in_place=0, fused=True),
)  # fmt: skip
