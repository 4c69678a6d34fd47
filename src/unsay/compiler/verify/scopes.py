"""At which sizes the axioms are proved: every small one (T2), and those of a real model (T3).

Scope("x: T K, w: N K, b: (N)", {"T": 2, "K": 3, "N": 2}) has a term x of T rows and K columns of f32, a w, and a list b
of one vector, at every T in 1..2, K in 1..3, N in 1..2. `()` is an empty list, `=0.0 ...` a constant, a word after the
sizes another element type, `mask` a constant of bools, the bits of M. Attributes are Python expressions over the
letters. An axiom whose right side is computed has its left side here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from unsay.compiler.ir.types import DTYPES, TensorType
from unsay.compiler.verify.patterns import Binding
from unsay.compiler.verify.terms import CACHE, Terms
from unsay.isa.formats import DType

REAL: dict[str, int] = {
    "T": 3, "P": 5, "K": 576, "N": 576, "F": 1536, "H": 3, "G": 3, "D": 64, "C": 24, "O": 32, "W": 14, "A": 7, "B": 5,
    "M": 0xB5C3,
}  # fmt: skip
"""Sizes of SmolLM2, and of a picture: T tokens, P tokens of the past, K inputs, N outputs, F feed-forward, H heads for
each of G kv heads, D head size, C channels, O output channels, W pixels a side, M a mask in bits, A, B anything."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Terms and attributes for the names of an equation; `most` is the greatest small size of each letter."""

    terms: str
    most: Mapping[str, int | tuple[int, ...]]
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    left: str = ""

    def small_sizes(self) -> Iterator[dict[str, int]]:
        """Every combination of small sizes."""
        ranges = [most if isinstance(most, tuple) else range(1, most + 1) for most in self.most.values()]
        for sizes in itertools.product(*ranges):
            yield dict(zip(self.most, sizes, strict=True))

    def real_sizes(self) -> dict[str, int]:
        """Those of a real model."""
        return {letter: REAL[letter] for letter in self.most}

    def bind(self, terms: Terms, sizes: Mapping[str, int]) -> Binding:
        """The terms and attributes at these sizes."""
        found: Binding = {name: eval(text, {"__builtins__": {}}, dict(sizes)) for name, text in self.attributes.items()}
        for name, text in re.findall(r"(\w+): ([^,]+)", self.terms):
            found[name] = _leaves(terms, name, text.strip(), sizes)
        return found


def _leaves(terms: Terms, name: str, text: str, sizes: Mapping[str, int]) -> Any:
    if text == "cache":
        return terms.apply("cache", (), {"name": name, "columns": sizes["G"] * sizes["D"], "past": sizes["P"]}, CACHE)
    if text == "()":
        return ()
    if text.startswith("("):
        return tuple(_leaf(terms, f"{name}{place}", part, sizes) for place, part in enumerate(text[1:-1].split(";")))
    return _leaf(terms, name, text, sizes)


def _leaf(terms: Terms, name: str, text: str, sizes: Mapping[str, int]) -> Any:
    tensor_type, value = _type(text, sizes)
    if value is None:
        return terms.apply("input", (), {"name": name}, tensor_type)
    return terms.apply("constant", (), {"value": value}, tensor_type)


def _type(text: str, sizes: Mapping[str, int]) -> tuple[TensorType, tuple[float, ...] | None]:
    dims: list[int] = []
    dtype, value = DType.F32, None
    for word in text.split():
        if word in DTYPES:
            dtype = DTYPES[word]
        elif word == "mask":
            return TensorType(tuple(dims), DType.BOOL), _bits(sizes["M"], prod(dims))
        elif word.startswith("="):
            value = (float(word[1:]),)
        else:
            dims.append(eval(word, {"__builtins__": {}}, dict(sizes)))
    return TensorType(tuple(dims), dtype), value


def _bits(mask: int, count: int) -> tuple[int, ...]:
    return tuple(mask >> place & 1 for place in range(count))


_AB = {"A": 2, "B": 2}
_CONV = "{'strides': (1, 2), 'pads': (1, 0, 0, 1), 'dilations': (1, 1), 'groups': 1}"
_PICTURE = {"A": 2, "C": 2, "O": 2, "W": (2, 3)}
_NORMED = "x: 1 C W W, w: O C 2 1, r: O 1 1 1, s: O, t: O, m: O, u: O, c: =0.5"
_NORMED_MOST = {"C": 2, "O": (2,), "W": (2,)}
_NORMED_CONV = {"a": _CONV}
_K = "mul(s, rsqrt(add(mul(u, u), c)))"
_FOLDED = f"conv2d(x, mul(w, (r := reshape({_K}))), %s, **a)"
"""A convolution with a batch norm in its weights. The variance is a square: it is 0 or more, and else anything."""

_QKV_HEADS = "q: 2 T D, k: 2 T D, v: 2 T D"
_HEADS_MOST = {"T": 2, "D": 2}
_MASK = {"T": (2,), "D": (1,), "M": 16}
_SPELLED = {"i": "(-1,)"}

_ROPE = {"d": "D", "rest": "{'num_heads': H, 'base': 10000.0}"}
_QKV = {"n": "H*G", "m": "G", "rest": "{'head_dim': D, 'base': 10000.0, 'pairing': 'halves'}"}
_ATTENTION = {"d": "D", "rest": "{'layer': 0, 'num_heads': H*G, 'num_kv_heads': G, 'scale': 0.5, 'output': 'f32'}"}
_HEADS = {"T": 2, "P": (0, 1), "H": 2, "G": 2, "D": (4,)}
_NORM = {"rest": "{'eps': 1e-05}"}

_QKV_TERMS = "x: T K, wq: H*G*D K, wk: G*D K, wv: G*D K"
_QKV_BIASES = _QKV_TERMS + ", bq: H*G*D, bk: G*D, bv: G*D"
_QKV_MOST = {"T": 2, "K": (2,), "H": 2, "G": 2, "D": (4,)}

SCOPES: dict[str, tuple[Scope, ...]] = {
    "pair-linear": (Scope("x: T K, w: H*D K", {"T": 2, "K": 3, "H": 2, "D": (2, 4, 6)}, {"d": "D"}),),
    "pair-linear-bias": (Scope("x: T K, w: H*D K, b: H*D", {"T": 2, "K": 3, "H": 2, "D": (2, 4, 6)}, {"d": "D"}),),
    "pair-rope": (Scope("x: T H*D", {"T": 3, "H": 2, "D": (2, 4, 6, 8)}, _ROPE),),
    "pair-append": (Scope("c: cache, k: T G*D, v: T G*D", {"T": 2, "P": (0, 1, 2), "G": 2, "D": (2, 4)}, {"d": "D"}),),
    "pair-attention": (Scope("c: cache, q: T H*G*D, k: T G*D, v: T G*D", _HEADS, _ATTENTION),),
    "unpair-cache": (Scope("c: cache", {"P": (0, 1, 2), "G": 2, "D": (2, 4, 6)}, {"d": "D"}),),
    "add-commutes": (Scope("b: A B, a: A B", _AB),),
    "mul-commutes": (Scope("b: A B, a: A B", _AB),),
    "silu-mul": (Scope("g: T F, u: T F", {"T": 2, "F": 3}),),
    "silu-mul-quantised": (Scope("g: T F, u: T F", {"T": 2, "F": (32,)}),),
    "ffn": (
        Scope("r: T N, x: T K, g: F K, u: F K, d: N F", {"T": 2, "N": 2, "K": 2, "F": 3}, {"h": "'f32'"}),
        Scope("r: T N, x: T K, g: F K, u: F K, d: N F q8_0", {"T": 1, "N": 2, "K": 1, "F": (32,)}, {"h": "'q8w'"}),
    ),
    "qkv-q": (Scope(_QKV_TERMS, _QKV_MOST, _QKV),),
    "qkv-k": (Scope(_QKV_TERMS, _QKV_MOST, _QKV),),
    "qkv-v": (Scope(_QKV_TERMS, _QKV_MOST, {"rest": f"{{'num_heads': H*G, 'num_kv_heads': G, **{_QKV['rest']}}}"}),),
    "qkv-q-bias": (Scope(_QKV_BIASES, _QKV_MOST, _QKV),),
    "qkv-k-bias": (Scope(_QKV_BIASES, _QKV_MOST, _QKV),),
    "qkv-v-bias": (
        Scope(_QKV_BIASES, _QKV_MOST, {"rest": f"{{'num_heads': H*G, 'num_kv_heads': G, **{_QKV['rest']}}}"}),
    ),
    "linear-add": (
        Scope("r: T N, x: T K, w: N K, b: ()", {"T": 2, "N": 2, "K": 3}),
        Scope("r: T N, x: T K, w: N K, b: (N)", {"T": 2, "N": 2, "K": 3}),
    ),
    "rms-norm-quantised": (Scope("x: T K, v: (K)", {"T": 2, "K": (32,)}, _NORM),),
    "layer-norm-quantised": (
        Scope("x: T K, v: (K)", {"T": 2, "K": (32,)}, _NORM),
        Scope("x: T K, v: (K; K)", {"T": 2, "K": (32,)}, _NORM),
    ),
    "attention-quantised": (
        Scope("c: cache, q: T H*G*D, k: T G*D, v: T G*D", {"T": 2, "P": (0, 1), "H": 1, "G": 1, "D": (32,)},
              {"rest": "{'layer': 0, 'num_heads': H*G, 'num_kv_heads': G, 'head_dim': D, 'scale': 0.5}"}),
    ),
    "reshape-none": (Scope("x: A B, result: A B", _AB),),
    "broadcast-none": (Scope("x: A B, result: A B", _AB),),
    "cast-none": (Scope("x: A B", _AB, {"t": "'f32'"}),),
    "slice-none": (Scope("x: A B", _AB, {"i": "1", "a": "0", "b": "B", "s": "1"}),),
    "concat-none": (Scope("x: A B", _AB, {"i": "1"}),),
    "reshape-twice": (Scope("x: 2*A 3 B, r: 6 A*B, result: A*B 2 3", _AB),),
    "transpose-none": (Scope("x: A B 2", _AB, {"p": "(0, 1, 2)"}),),
    "transpose-twice": (
        Scope("x: A B 3", _AB, {"p": "(1, 2, 0)", "q": "(1, 2, 0)"}),
        Scope("x: A B 3", _AB, {"p": "(2, 1, 0)", "q": "(1, 0, 2)"}),
        Scope("x: A B", _AB, {"p": "(1, 0)", "q": "(1, 0)"}),
    ),
    "neg-twice": (Scope("x: A B", _AB),),
    "not-twice": (Scope("x: A B bool", _AB),),
    "add-zero": (Scope("x: A B, c: =0.0", _AB), Scope("x: A B, c: =0.0 B", _AB)),
    "sub-zero": (Scope("x: A B, c: =0.0", _AB),),
    "mul-one": (Scope("x: A B, c: =1.0", _AB), Scope("x: A B, c: =1.0 A B", _AB)),
    "div-one": (Scope("x: A B, c: =1.0", _AB),),
    "pow-one": (Scope("x: A B, c: =1.0", _AB),),
    "pow-two": (Scope("x: A B, c: =2.0", _AB),),
    "pow-half": (Scope("x: A B, c: =0.5", _AB),),
    "pow-minus-half": (Scope("x: A B, c: =-0.5", _AB),),
    "pow-minus-one": (Scope("x: A B, c: =-1.0", _AB),),
    "one-over": (Scope("x: A B, c: =1.0", _AB),),
    "one-over-root": (Scope("x: A B", _AB),),
    "sigmoid": (Scope("x: A B, c: =1.0", _AB),),
    "silu-product": (Scope("x: A B", _AB),),
    "silu-quotient": (Scope("x: A B, c: =1.0", _AB),),
    "relu": (Scope("x: A B, c: =0.0", _AB),),
    "softmax": (
        Scope("x: A B", {"A": 2, "B": 3}, {"i": "(-1,)", "j": "(1,)"}),
        Scope("x: A B", {"A": 3, "B": 2}, {"i": "(0,)", "j": "(0,)"}),
    ),
    "conv-bias": (
        Scope("x: A C W W, w: O C 2 1, b: O, r: O 1 1", _PICTURE, {"a": _CONV}),
        Scope("x: A C W W, w: O C 2 1, b: O, r: 1 O 1 1", _PICTURE, {"a": _CONV}),
    ),
    "conv-batch-norm": (Scope(_NORMED, _NORMED_MOST, _NORMED_CONV, left=_FOLDED % f"sub(t, mul(m, {_K}))"),),
    "conv-bias-batch-norm": (
        Scope(_NORMED + ", b: O", _NORMED_MOST, _NORMED_CONV, left=_FOLDED % f"add(mul(sub(b, m), {_K}), t)"),
    ),
    "conv-relu": (
        Scope("x: A C W W, w: O C 2 1, b: ()", _PICTURE, {"a": _CONV}),
        Scope("x: A C W W, w: O C 2 1, b: (O)", _PICTURE, {"a": _CONV}),
    ),
    "matmul-silu": (Scope("a: T K, b: K N", {"T": 2, "K": 2, "N": 2}),),
    "matmul-bias-silu": (Scope("a: 2 T K, b: K N, c: N", {"T": 2, "K": 2, "N": 2}),),
    "rms-norm": (Scope("x: T K, c: =1e-05, g: K", {"T": 2, "K": 3}, _SPELLED),),
    "rms-norm-quotient": (Scope("x: T K, c: =1e-05, g: K", {"T": 2, "K": 3}, _SPELLED),),
    "sdpa": (Scope(_QKV_HEADS, _HEADS_MOST, {"s": "0.5"}),),
    "sdpa-kept": (Scope(f"{_QKV_HEADS}, m: T T mask", _MASK, {"s": "0.5"}),),
    "sdpa-mask": (Scope(f"{_QKV_HEADS}, m: T T", _HEADS_MOST, {"s": "0.5"}),),
    "attend": (Scope("s: T P, v: P D", {"T": 2, "P": 3, "D": 2}, {"i": "-1"}),),
    "kept": (Scope("c: T P mask, x: T P, k: =-inf", {"T": (2,), "P": (2,), "M": 16}),),
    "dropped": (Scope("c: T P mask, x: T P, k: =-inf", {"T": (2,), "P": (2,), "M": 16}),),
    "scale": (Scope("x: A B, c: =0.25", _AB),),
    "scale-divisor": (Scope("x: A B, c: =8.0", _AB),),
    "scale-none": (Scope("x: A B", _AB, {"a": "1.0"}),),
    "scale-twice": (Scope("x: A B", _AB, {"a": "0.25", "b": "0.5"}),),
    "scale-left": (Scope("x: T K, y: K N", {"T": 2, "K": 3, "N": 2}, {"a": "0.25"}),),
    "scale-right": (Scope("x: T K, y: K N", {"T": 2, "K": 3, "N": 2}, {"a": "0.25"}),),
    "scale-transposed": (Scope("x: A B 2", _AB, {"a": "0.25", "p": "(2, 0, 1)"}),),
    "add-rms-norm-sum": (Scope("a: T K, b: T K, g: K", {"T": 2, "K": 3}, {"rest": "{'eps': 1e-05, 'output': 'f32'}"}),),
    "add-rms-norm": (
        Scope("a: T K, b: T K, g: K", {"T": 2, "K": 3}, {"rest": "{'eps': 1e-05, 'output': 'f32'}"}),
        Scope("a: T K, b: T K, g: K", {"T": 2, "K": (32,)}, {"rest": "{'eps': 1e-05, 'output': 'q8w'}"}),
    ),
    "fold-constants": (
        Scope("a: =1.5 A B, b: =-2.25 A B", _AB, left="mul(a, b)"),
        Scope("a: =3.0 A B", _AB, left="reduce_sum(a, axes=(1,), keepdims=False)"),
        Scope("a: =3.0 A B", _AB, left="transpose(a, perm=(1, 0))"),
    ),
    "widen": (
        Scope("a: T K f16, b: K N f16", {"T": 2, "K": 2, "N": 2}, left="matmul(a, b)"),
        Scope("a: A B f16", _AB, left="relu(a)"),
        Scope("a: A B bf16, b: A B bf16", _AB, left="add(a, b)"),
    ),
    "cast-float": (
        Scope("x: A B", _AB, {"a": "'f16'", "b": "'f32'"}),
        Scope("x: A B f16", _AB, {"a": "'f32'", "b": "'bf16'"}),
    ),
}  # fmt: skip

T3_EXEMPT = frozenset({"pow-one", "pow-two", "pow-half", "pow-minus-half", "pow-minus-one", "fold-constants", "widen",
                       "cast-float", "sdpa-kept"})  # fmt: skip
"""Axioms on what a power, a float, a rounding or infinity is, which residues have no part of."""
