"""Llama (and SmolLM2, Mistral, TinyLlama): RMS norms before attention and feed-forward, RoPE, gated SiLU.

    x = embed(tokens)
    each layer:  x = x + Wo attention(rope(Wq n), rope(Wk n), Wv n)     n = norm(x)
                 x = x + Wdown (silu(Wgate n) * (Wup n))                n = norm(x)
    logits = Whead norm(x of the rows wanted)                           Whead: the file's output, or the embedding

Source: Touvron et al., LLaMA (2023), section 2.2; tensor names as GGUF files have them. GGUF writers reorder the rows
of Q and K of this architecture so that RoPE pairs are adjacent; Hugging Face leaves them in halves: see `rope_pairing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph, Value
from unsay.compiler.models.tensors import Tensors
from unsay.image import ModelSpec


def build(graph: Graph, spec: ModelSpec, tensors: Tensors) -> None:
    """Fill the graph with the whole model."""
    vocab, embedding = spec.vocab_size, spec.embedding_size
    tokens = emit(graph, "tokens", name="tokens")
    table = tensors.matrix("token_embd.weight", vocab, embedding)
    x = emit(graph, "embed", tokens, table, name="x")
    for layer in range(spec.num_layers):
        x = _attention(graph, spec, tensors, layer, x)
        x = _feed_forward(graph, spec, tensors, layer, x)
    rows = emit(graph, "select_rows", x, name="rows")
    normed = _norm(graph, spec, tensors, rows, "output_norm")
    head = tensors.matrix("output.weight", vocab, embedding) if "output.weight" in tensors else table
    logits = emit(graph, "linear", normed, head, name="logits")
    graph.add("output", (logits,))


def _attention(graph: Graph, spec: ModelSpec, tensors: Tensors, layer: int, x: Value) -> Value:
    block, width = f"blk.{layer}", spec.num_heads * spec.head_dim
    normed = _norm(graph, spec, tensors, x, f"{block}.attn_norm")
    kv_width = spec.num_kv_heads * spec.head_dim
    q = _linear(graph, tensors, normed, f"{block}.attn_q", (width, spec.embedding_size))
    k = _linear(graph, tensors, normed, f"{block}.attn_k", (kv_width, spec.embedding_size))
    v = _linear(graph, tensors, normed, f"{block}.attn_v", (kv_width, spec.embedding_size))
    q = _rope(graph, spec, q, spec.num_heads)
    k = _rope(graph, spec, k, spec.num_kv_heads)
    attended = emit(
        graph, "attention", q, k, v, name=f"{block}.attn", layer=layer, num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads, head_dim=spec.head_dim, scale=_scale(spec.head_dim), output="f32",
    )  # fmt: skip
    out = _linear(graph, tensors, attended, f"{block}.attn_output", (spec.embedding_size, width))
    return emit(graph, "add", x, out, name=f"{block}.attn_residual")


def _feed_forward(graph: Graph, spec: ModelSpec, tensors: Tensors, layer: int, x: Value) -> Value:
    block, hidden, embedding = f"blk.{layer}", spec.ffn_size, spec.embedding_size
    normed = _norm(graph, spec, tensors, x, f"{block}.ffn_norm")
    gate = _linear(graph, tensors, normed, f"{block}.ffn_gate", (hidden, embedding))
    up = _linear(graph, tensors, normed, f"{block}.ffn_up", (hidden, embedding))
    active = emit(graph, "silu", gate, name=f"{block}.silu")
    product = emit(graph, "mul", active, up, name=f"{block}.hidden")
    down = _linear(graph, tensors, product, f"{block}.ffn_down", (embedding, hidden))
    return emit(graph, "add", x, down, name=f"{block}.ffn_residual")


def _norm(graph: Graph, spec: ModelSpec, tensors: Tensors, x: Value, name: str) -> Value:
    gamma = tensors.vector(f"{name}.weight", spec.embedding_size)
    return emit(graph, "rms_norm", x, gamma, name=name, eps=float(spec.norm_eps), output="f32")


def _linear(graph: Graph, tensors: Tensors, x: Value, name: str, shape: Sequence[int]) -> Value:
    num_rows, num_columns = shape
    weight = tensors.matrix(f"{name}.weight", num_rows, num_columns)
    bias = tensors.optional_vector(f"{name}.bias", num_rows)
    return emit(graph, "linear", x, weight, *bias, name=name)


def _rope(graph: Graph, spec: ModelSpec, x: Value, num_heads: int) -> Value:
    return emit(
        graph, "rope", x, name=f"{x.name}.rope", num_heads=num_heads, head_dim=spec.head_dim,
        base=float(spec.rope_base), pairing=spec.rope_pairing,
    )  # fmt: skip


def _scale(head_dim: int) -> float:
    """1 / sqrt(D) rounded to f32, as a Python float."""
    return float(np.float32(1.0 / math.sqrt(head_dim)))
