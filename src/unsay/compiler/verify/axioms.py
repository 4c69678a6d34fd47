"""The equations passes may rely on, each once: name, text, what it keeps, and which pass may use it.

`keeps` says what is equal:

    bits     every bit, in the arithmetic of docs/numerics.md: both sides round in the same places
    reals    the real numbers they stand for: the right side adds or multiplies in another order
    nothing  it is a definition: what the left side is taken to mean from here on. Applied to the graph before the
             pass only, so the graph after it must really have what is on the right

Every axiom has a proof by its name: T2 at every small size (small_scope.py), T3 at real sizes (identity.py).

To add a pass: its axioms in AXIOMS, their names in BY_PASS, their scopes in scopes.py. A pass without a row may only
rely on equal operations with equal operands having equal results.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from unsay.compiler.verify.equations import Equation

Keeps: TypeAlias = Literal["bits", "reals", "nothing"]


@dataclass(frozen=True, slots=True)
class Axiom:
    """An equation with a name."""

    name: str
    text: str
    keeps: Keeps = "bits"
    where: str = "True"
    equation: Equation = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "equation", Equation(self.text, self.where))


AXIOMS: tuple[Axiom, ...] = (
    Axiom("pair-linear", "linear(x, pair_rows(w, head_dim=d)) == pair_columns(linear(x, w), head_dim=d)"),
    Axiom("pair-linear-bias",
          "linear(x, pair_rows(w, head_dim=d), pair_rows(b, head_dim=d)) == pair_columns(linear(x, w, b), head_dim=d)"),
    Axiom("pair-rope",
          "rope(pair_columns(x, head_dim=d), head_dim=d, pairing='halves', **rest)"
          " == pair_columns(rope(x, head_dim=d, pairing='halves', **rest), head_dim=d)"),
    Axiom("pair-append",
          "append(pair_cache(c, head_dim=d), pair_columns(k, head_dim=d), v)"
          " == pair_cache(append(c, k, v), head_dim=d)"),
    Axiom("pair-attention",
          "attention(pair_cache(c, head_dim=d), pair_columns(q, head_dim=d), pair_columns(k, head_dim=d), v,"
          " head_dim=d, **rest) == attention(c, q, k, v, head_dim=d, **rest)", "reals"),
    Axiom("unpair-cache", "unpair_cache(pair_cache(c, head_dim=d), head_dim=d) == c"),
    Axiom("quantise-attended", "linear(x, w, *b) == linear(quantise(x, output='q8a'), w, *b)", "nothing",
          "x.dtype == 'f32' and w.dtype in ('q4_0', 'q4_1', 'q8_0') and x.kind == 'attention'"),
    Axiom("quantise-others", "linear(x, w, *b) == linear(quantise(x, output='q8w'), w, *b)", "nothing",
          "x.dtype == 'f32' and w.dtype in ('q4_0', 'q4_1', 'q8_0') and x.kind != 'attention'"),
    Axiom("add-commutes", "add(a, b) == add(b, a)"),
    Axiom("mul-commutes", "mul(a, b) == mul(b, a)"),
    Axiom("silu-mul", "silu_mul(g, u, output='f32') == mul(silu(g), u)"),
    Axiom("silu-mul-quantised", "silu_mul(g, u, output='q8w') == quantise(silu_mul(g, u, output='f32'), output='q8w')"),
    Axiom("ffn", "ffn(r, x, g, u, d, hidden=h)"
          " == add(r, linear(silu_mul(linear(x, g), linear(x, u), output=h), d))"),
    Axiom("qkv-q", "qkv(x, wq, wk, wv, num_heads=n, num_kv_heads=m, **rest)[0]"
          " == rope(linear(x, wq), num_heads=n, **rest)"),
    Axiom("qkv-k", "qkv(x, wq, wk, wv, num_heads=n, num_kv_heads=m, **rest)[1]"
          " == rope(linear(x, wk), num_heads=m, **rest)"),
    Axiom("qkv-v", "qkv(x, wq, wk, wv, **rest)[2] == linear(x, wv)"),
    Axiom("qkv-q-bias", "qkv(x, wq, wk, wv, bq, bk, bv, num_heads=n, num_kv_heads=m, **rest)[0]"
          " == rope(linear(x, wq, bq), num_heads=n, **rest)"),
    Axiom("qkv-k-bias", "qkv(x, wq, wk, wv, bq, bk, bv, num_heads=n, num_kv_heads=m, **rest)[1]"
          " == rope(linear(x, wk, bk), num_heads=m, **rest)"),
    Axiom("qkv-v-bias", "qkv(x, wq, wk, wv, bq, bk, bv, **rest)[2] == linear(x, wv, bv)"),
    Axiom("linear-add", "linear_add(r, x, w, *b) == add(r, linear(x, w, *b))"),
    Axiom("rms-norm-quantised",
          "rms_norm(x, *v, output='q8w', **rest) == quantise(rms_norm(x, *v, output='f32', **rest), output='q8w')"),
    Axiom("layer-norm-quantised",
          "layer_norm(x, *v, output='q8w', **rest) == quantise(layer_norm(x, *v, output='f32', **rest), output='q8w')"),
    Axiom("attention-quantised",
          "attention(c, q, k, v, output='q8a', **rest)"
          " == quantise(attention(c, q, k, v, output='f32', **rest), output='q8a')"),
)  # fmt: skip

BY_NAME: dict[str, Axiom] = {axiom.name: axiom for axiom in AXIOMS}
assert len(BY_NAME) == len(AXIOMS), "two axioms have one name"

BY_PASS: dict[str, tuple[str, ...]] = {
    "pair_rope_rows": ("pair-linear", "pair-linear-bias", "pair-rope", "pair-append", "pair-attention", "unpair-cache"),
    "quantise_activations": ("quantise-attended", "quantise-others"),
    "fuse_silu_mul": ("silu-mul", "silu-mul-quantised", "mul-commutes"),
    "fuse_ffn": ("ffn", "add-commutes"),
    "fuse_qkv_rope": ("qkv-q", "qkv-k", "qkv-v", "qkv-q-bias", "qkv-k-bias", "qkv-v-bias"),
    "fuse_residual": ("linear-add", "add-commutes"),
    "fuse_norm_quantise": ("rms-norm-quantised", "layer-norm-quantised"),
    "fuse_attention_quantise": ("attention-quantised",),
}


def axioms_of(pass_name: str) -> tuple[Axiom, ...]:
    """The axioms a pass may use."""
    return tuple(BY_NAME[name] for name in BY_PASS.get(pass_name, ()))
