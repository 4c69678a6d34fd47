"""The equations passes may rely on, each once: name, text, what it keeps, and which pass may use it.

`keeps` says what is equal:

    bits     every bit, in the arithmetic of docs/numerics.md: both sides round in the same places
    reals    the real numbers they stand for: the right side adds or multiplies in another order, or has the other zero
    rounded  the real numbers they stand for, but that results are rounded to a narrower element type, or a constant
             is made of others and rounded
    nothing  it is a definition: what the left side is taken to mean from here on. Applied to the graph before the
             pass only, so the graph after it must really have what is on the right

Every axiom has a proof by its name: T2 at every small size (small_scope.py), T3 at real sizes (identity.py).

To add a pass: its axioms in AXIOMS, their names in BY_PASS, their scopes in scopes.py. A pass without a row may only
rely on equal operations with equal operands having equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol, TypeAlias

from unsay.compiler.ir.types import NARROW
from unsay.compiler.verify.computed import Folding, Widening
from unsay.compiler.verify.equations import Builder, Equation
from unsay.compiler.verify.terms import Term
from unsay.isa.formats import DType

Keeps: TypeAlias = Literal["bits", "reals", "rounded", "nothing"]
WEAKER: tuple[Keeps, ...] = ("bits", "reals", "rounded", "nothing")


class Rule(Protocol):
    """How instances of an axiom are made."""

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of the terms it may apply to."""
        ...

    def apply(self, builder: Builder, term: Term) -> Term | None:
        """What the term is equal to, None where the axiom says nothing of it; raises IrError if that is ill typed."""
        ...


@dataclass(frozen=True)
class Axiom:
    """An equation with a name; `computed` is given where its right side is (computed.py)."""

    name: str
    text: str
    keeps: Keeps = "bits"
    where: str = "True"
    computed: Rule | None = None

    @cached_property
    def equation(self) -> Equation:
        """The text, read when it is first used: a pass uses a few of many."""
        return Equation(self.text, self.where)

    @property
    def rule(self) -> Rule:
        """How its instances are made."""
        return self.equation if self.computed is None else self.computed

    def keeps_of(self, dtype: DType) -> Keeps:
        """What is equal where results are of this element type."""
        return "rounded" if self.name in _FUSED and dtype in NARROW else self.keeps


_FUSED = frozenset({"one-over-root", "conv-bias", "matmul-silu", "matmul-bias-silu"})
"""One side stores a result on the way that the other does not: where it is stored in a type narrower than sums and
functions are computed in, only that side rounds it."""

_SAME = "x.type == result.type"
_SCORES = "scaled(matmul(q, transpose(k, perm=(*range(k.rank - 2), k.rank - 1, k.rank - 2))), factor=brief(s))"
_FACTOR = f"number(c) is not None and 0 < number(c) < inf and {_SAME}"

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
    Axiom("reshape-none", "reshape(x) == x", where=_SAME),
    Axiom("broadcast-none", "broadcast_to(x) == x", where=_SAME),
    Axiom("cast-none", "cast(x, dtype=t) == x", where=_SAME),
    Axiom("slice-none", "slice(x, axis=i, start=a, stop=b, step=s) == x", where=_SAME),
    Axiom("concat-none", "concat(x, axis=i) == x"),
    Axiom("reshape-twice", "reshape((r := reshape(x))) == reshape(x)"),
    Axiom("transpose-none", "transpose(x, perm=p) == x", where="p == tuple(range(len(p)))"),
    Axiom("transpose-twice", "transpose(transpose(x, perm=p), perm=q) == transpose(x, perm=tuple(p[i] for i in q))"),
    Axiom("neg-twice", "neg(neg(x)) == x"),
    Axiom("not-twice", "not_(not_(x)) == x"),
    Axiom("add-zero", "add(x, c) == x", "reals", f"number(c) == 0 and {_SAME}"),
    Axiom("sub-zero", "sub(x, c) == x", "reals", f"number(c) == 0 and {_SAME}"),
    Axiom("mul-one", "mul(x, c) == x", where=f"number(c) == 1 and {_SAME}"),
    Axiom("div-one", "div(x, c) == x", where=f"number(c) == 1 and {_SAME}"),
    Axiom("pow-one", "pow(x, c) == x", "reals", f"number(c) == 1 and {_SAME}"),
    Axiom("pow-two", "pow(x, c) == mul(x, x)", "reals", f"number(c) == 2 and {_SAME}"),
    Axiom("pow-half", "pow(x, c) == sqrt(x)", "reals", f"number(c) == 0.5 and {_SAME}"),
    Axiom("pow-minus-half", "pow(x, c) == rsqrt(x)", "reals", f"number(c) == -0.5 and {_SAME}"),
    Axiom("pow-minus-one", "pow(x, c) == reciprocal(x)", "reals", f"number(c) == -1 and {_SAME}"),
    Axiom("one-over", "div(c, x) == reciprocal(x)", where=f"number(c) == 1 and {_SAME}"),
    Axiom("one-over-root", "reciprocal(sqrt(x)) == rsqrt(x)"),
    Axiom("sigmoid", "reciprocal(add(exp(neg(x)), c)) == sigmoid(x)", "reals", f"number(c) == 1 and {_SAME}"),
    Axiom("silu-product", "mul(x, sigmoid(x)) == silu(x)", "reals"),
    Axiom("silu-quotient", "div(x, add(exp(neg(x)), c)) == silu(x)", "reals", f"number(c) == 1 and {_SAME}"),
    Axiom("relu", "maximum(x, c) == relu(x)", "reals", f"number(c) == 0 and {_SAME}"),
    Axiom("softmax",
          "div(exp(sub(x, reduce_max(x, axes=i, keepdims=True))),"
          " reduce_sum(exp(sub(x, reduce_max(x, axes=i, keepdims=True))), axes=j, keepdims=True))"
          " == softmax(x, axis=i[0] % x.rank)", "reals", "len(i) == len(j) == 1 and (i[0] - j[0]) % x.rank == 0"),
    Axiom("conv-bias", "add(conv2d(x, w, **a), (r := reshape(b))) == conv2d(x, w, b, **a)",
          where="b.rank == 1 and r.type.dims in ((*b.type.dims, 1, 1), (1, *b.type.dims, 1, 1))"),
    Axiom("conv-batch-norm",
          "conv2d(x, mul(w, (r := reshape(mul(s, rsqrt(add(v, c)))))), sub(t, mul(m, mul(s, rsqrt(add(v, c))))), **a)"
          " == batch_norm(conv2d(x, w, **a), s, t, m, v, eps=0.0 + number(c))", "reals",
          "number(c) is not None and number(c) > 0 and r.type.dims == (*s.type.dims, 1, 1, 1)"),
    Axiom("conv-bias-batch-norm",
          "conv2d(x, mul(w, (r := reshape(mul(s, rsqrt(add(v, c)))))),"
          " add(mul(sub(b, m), mul(s, rsqrt(add(v, c)))), t), **a)"
          " == batch_norm(conv2d(x, w, b, **a), s, t, m, v, eps=0.0 + number(c))", "reals",
          "number(c) is not None and number(c) > 0 and r.type.dims == (*s.type.dims, 1, 1, 1)"),
    Axiom("conv-relu", "conv2d_relu(x, w, *b, **a) == relu(conv2d(x, w, *b, **a))"),
    Axiom("matmul-silu", "matmul_silu(a, b) == silu(matmul(a, b))"),
    Axiom("matmul-bias-silu", "matmul_silu(a, b, c) == silu(add(matmul(a, b), c))"),
    Axiom("rms-norm",
          "mul(mul(x, rsqrt(add(reduce_mean(mul(x, x), axes=i, keepdims=True), c))), g)"
          " == rms_norm(x, g, eps=0.0 + number(c), output='f32')", "reals",
          "number(c) is not None and i in ((-1,), (x.rank - 1,)) and g.rank == 1 and x.type == result.type"),
    Axiom("rms-norm-quotient",
          "mul(div(x, sqrt(add(reduce_mean(mul(x, x), axes=i, keepdims=True), c))), g)"
          " == rms_norm(x, g, eps=0.0 + number(c), output='f32')", "reals",
          "number(c) is not None and i in ((-1,), (x.rank - 1,)) and g.rank == 1 and x.type == result.type"),
    Axiom("sdpa", f"sdpa(q, k, v, scale=s) == attend({_SCORES}, v)", "rounded"),
    Axiom("sdpa-kept", f"sdpa(q, k, v, m, scale=s) == attend(masked({_SCORES}, m), v)", "rounded", "m.dtype == 'bool'"),
    Axiom("sdpa-mask", f"sdpa(q, k, v, m, scale=s) == attend(add({_SCORES}, m), v)", "rounded", "m.dtype != 'bool'"),
    Axiom("attend", "matmul(softmax(s, axis=i), v) == attend(s, v)", "reals",
          "i in (-1, s.rank - 1) and s.rank == v.rank"),
    Axiom("kept", "select(c, x, k) == masked(x, c)", where=f"number(k) == -inf and {_SAME}"),
    Axiom("dropped", "select(c, k, x) == masked(x, not_(c))", where=f"number(k) == -inf and {_SAME}"),
    Axiom("scale", "mul(x, c) == scaled(x, factor=brief(number(c)))", "rounded", _FACTOR),
    Axiom("scale-divisor", "div(x, c) == scaled(x, factor=brief(1 / number(c)))", "rounded", _FACTOR),
    Axiom("scale-none", "scaled(x, factor=a) == x", where="a == 1"),
    Axiom("scale-twice", "scaled(scaled(x, factor=a), factor=b) == scaled(x, factor=brief(a * b))", "rounded"),
    Axiom("scale-left", "matmul(scaled(x, factor=a), y) == scaled(matmul(x, y), factor=a)", "reals"),
    Axiom("scale-right", "matmul(x, scaled(y, factor=a)) == scaled(matmul(x, y), factor=a)", "reals"),
    Axiom("scale-transposed", "transpose(scaled(x, factor=a), perm=p) == scaled(transpose(x, perm=p), factor=a)"),
    Axiom("add-rms-norm-sum", "add_rms_norm(a, b, g, **rest)[0] == add(a, b)"),
    Axiom("add-rms-norm", "add_rms_norm(a, b, g, **rest)[1] == rms_norm(add(a, b), g, **rest)"),
    Axiom("fold-constants", "f(constants, ..) == constant(value of f(constants, ..))", computed=Folding()),
    Axiom("widen", "f(x, ..) of a narrow float type == cast(f(cast(x, 'f32'), ..), narrow)", "rounded",
          computed=Widening()),
    Axiom("cast-float", "cast(cast(x, dtype=a), dtype=b) == cast(x, dtype=b)", "rounded",
          "all(t in ('f32', 'f16', 'bf16', 'f64') for t in (a, b, x.dtype))"),
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
    "canonicalise": (
        "reshape-none", "broadcast-none", "cast-none", "slice-none", "concat-none", "reshape-twice", "transpose-none",
        "transpose-twice", "neg-twice", "not-twice", "add-zero", "sub-zero", "mul-one", "div-one", "pow-one", "pow-two",
        "pow-half", "pow-minus-half", "pow-minus-one", "one-over", "one-over-root", "sigmoid", "silu-product",
        "silu-quotient", "relu", "softmax", "add-commutes", "mul-commutes",
    ),
    "fold_batch_norm": ("conv-batch-norm", "conv-bias-batch-norm"),
    "fuse_conv_relu": ("conv-bias", "conv-relu"),
    "fuse_gemm_bias_silu": ("matmul-silu", "matmul-bias-silu", "add-commutes"),
    "fuse_rms_norm": ("rms-norm", "rms-norm-quotient"),
    "fuse_attention": (
        "sdpa", "sdpa-kept", "sdpa-mask", "attend", "kept", "dropped", "scale", "scale-divisor", "scale-none",
        "scale-twice", "scale-left", "scale-right", "scale-transposed", "transpose-none", "transpose-twice",
        "add-commutes", "not-twice",
    ),
    "fuse_residual_norm_quantise": ("add-rms-norm-sum", "add-rms-norm", "rms-norm-quantised"),
    "fold_constants": ("fold-constants",),
    "propagate_precision": ("widen", "cast-float", "cast-none"),
}  # fmt: skip


def axioms_of(pass_name: str) -> tuple[Axiom, ...]:
    """The axioms a pass may use."""
    return tuple(BY_NAME[name] for name in BY_PASS.get(pass_name, ()))
