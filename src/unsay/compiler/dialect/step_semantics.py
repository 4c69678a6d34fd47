"""What the step operations mean (dialect/semantics.py): tokens at positions 0, 1, 2, ... of one sequence.

Shapes: T tokens, R logit rows, N outputs, K inputs, H heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsay.compiler.dialect.domains import Array, Domain
from unsay.compiler.dialect.meaning import Meaning, mean, silu
from unsay.compiler.dialect.neural_semantics import attend
from unsay.compiler.ir.core import Operation
from unsay.compiler.rope import rope_rows


def _embed(_d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    ids, w = operands
    return (w[ids],)


def _rms_norm(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    x, gamma = operands
    return (_stored(d, op, d.mul(_unit(d, op, x), gamma)),)


def _layer_norm(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    x, gamma, *betas = operands
    y = d.mul(_unit(d, op, d.sub(x, mean(d, x, (x.ndim - 1,)))), gamma)
    for beta in betas:
        y = d.add(y, beta)
    return (_stored(d, op, y),)


def _unit(d: Domain, op: Operation, x: Array) -> Array:
    """Rows divided by the root of their mean square."""
    square = d.add(mean(d, d.mul(x, x), (x.ndim - 1,)), op.number("eps"))
    return d.div(x, d.apply("sqrt", square))


def _stored(d: Domain, op: Operation, y: Array, attribute: str = "output") -> Array:
    dtype = op.string(attribute)
    return y if dtype == "f32" else d.apply(f"round_{dtype}", y)


def linear(d: Domain, x: Array, w: Array, *biases: Array) -> Array:
    """x [T, K], w [N, K], bias [N] -> [T, N]"""
    y = d.matmul(x, w.T)
    for bias in biases:
        y = d.add(y, bias)
    return y


def rotate(d: Domain, op: Operation, x: Array) -> Array:
    """x [T, H*D]: pair i of every head turned by the angle of position and i (N8)."""
    head_dim, pairing = op.integer("head_dim"), op.string("pairing")
    heads = x.reshape(x.shape[0], -1, head_dim)
    pairs = heads.reshape(*heads.shape[:2], *((-1, 2) if pairing == "adjacent" else (2, head_dim // 2)))
    axis = 3 if pairing == "adjacent" else 2
    a, b = pairs.take(0, axis), pairs.take(1, axis)
    table = d.lift(rope_rows(range(x.shape[0]), head_dim, op.number("base")))[:, None]
    cos, sin = table[..., 0], table[..., 1]
    turned = (d.sub(d.mul(a, cos), d.mul(b, sin)), d.add(d.mul(b, cos), d.mul(a, sin)))
    return np.stack(turned, axis).reshape(x.shape)


def _attention(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    num_heads, num_kv_heads, head_dim = map(op.integer, ("num_heads", "num_kv_heads", "head_dim"))
    tokens = operands[0].shape[0]
    q, k, v = (x.reshape(tokens, -1, head_dim).swapaxes(0, 1) for x in operands)
    k, v = (np.repeat(x, num_heads // num_kv_heads, 0) for x in (k, v))
    scores = d.mul(d.matmul(q, k.swapaxes(1, 2)), op.number("scale"))
    past = np.broadcast_to(np.tri(tokens, dtype=np.bool_), scores.shape)
    y = attend(d, scores, v, past)
    return (_stored(d, op, y.swapaxes(0, 1).reshape(tokens, -1)),)


def _qkv(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    x, wq, wk, wv, *biases = operands
    q, k, v = (linear(d, x, w, *biases[index : index + 1]) for index, w in enumerate((wq, wk, wv)))
    return rotate(d, op, q), rotate(d, op, k), v


def _linear_add(d: Domain, _op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    residual, *product = operands
    return (d.add(residual, linear(d, *product)),)


def _silu_mul(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    gate, up = operands
    return (_stored(d, op, d.mul(silu(d, gate), up)),)


def _ffn(d: Domain, op: Operation, operands: Sequence[Array]) -> tuple[Array, ...]:
    residual, x, gate, up, down = operands
    hidden = d.mul(silu(d, linear(d, x, gate)), linear(d, x, up))
    return (d.add(residual, linear(d, _stored(d, op, hidden, "hidden"), down)),)


STEP_SEMANTICS: dict[str, Meaning] = {
    "embed": _embed,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "linear": lambda d, _op, operands: (linear(d, *operands),),
    "rope": lambda d, op, operands: (rotate(d, op, operands[0]),),
    "attention": _attention,
    "quantise": lambda d, op, operands: (_stored(d, op, operands[0]),),
    "select_rows": lambda _d, _op, operands: (operands[0][operands[1]],),
    "qkv": _qkv,
    "linear_add": _linear_add,
    "silu_mul": _silu_mul,
    "ffn": _ffn,
}
