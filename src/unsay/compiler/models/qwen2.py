"""Qwen2: a llama with biases on Q, K and V, and RoPE over pairs (i, i + D/2).

Source: Qwen2 technical report (2024), section 2.2. GGUF writers leave the rows of Q and K as they
were trained.
"""

from __future__ import annotations

from unsay.compiler.ir.core import Graph
from unsay.compiler.models import llama
from unsay.compiler.models.tensors import Tensors
from unsay.errors import ModelFileError
from unsay.image import ModelSpec


def build(graph: Graph, spec: ModelSpec, tensors: Tensors) -> None:
    """Fill the graph with the whole model; raises ModelFileError if a bias is missing."""
    for layer in range(spec.num_layers):
        for name in ("attn_q", "attn_k", "attn_v"):
            if f"blk.{layer}.{name}.bias" not in tensors:
                raise ModelFileError(f"tensor blk.{layer}.{name}.bias is missing; architecture 'qwen2' needs it")
    llama.build(graph, spec, tensors)
