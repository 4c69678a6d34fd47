"""Tiny random models made by transformers, which judges the front ends for its directories and for torch.export."""

from __future__ import annotations

import gc
import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers

from tests.tiny import tiny_vocabulary
from tests.tiny_hf import write_tokenizer
from unsay.compiler.dialect.ops import emit
from unsay.compiler.ir.core import Graph

logging.getLogger("torch.__trace").setLevel(logging.WARNING)
"""Otherwise torch writes down every step of an export wherever a handler takes everything, as pytest's does."""

gc.freeze()
"""A million objects of two libraries that the collector need not look at again and again."""

KINDS = ("llama", "qwen2", "mistral")
CONTEXT = 128

_SIZES = {
    "vocab_size": len(tiny_vocabulary()[0]), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5,
}  # fmt: skip
_CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "mistral": "Mistral"}
_OF_KIND: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True, "head_dim": 32, "tie_word_embeddings": True},
    "qwen2": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "mistral": {"head_dim": 32, "sliding_window": None},
}
"""Between them: biases everywhere, on Q, K, V and nowhere; tied and untied heads; heads wider than the embedding."""


@cache
def model_of(kind: str, num_layers: int = 2, spread: bool = True) -> Any:
    """A model in float32. spread: weights large enough for logits with a standard deviation of about one and a half.

    Otherwise weights are as transformers draws them, with one of 0.02, and logits are small.
    """
    torch.manual_seed(7)
    sizes = {**_SIZES, "num_hidden_layers": num_layers, **_OF_KIND[kind]}
    model = getattr(transformers, f"{_CLASSES[kind]}ForCausalLM")(
        getattr(transformers, f"{_CLASSES[kind]}Config")(**sizes)
    )
    if not spread:
        return model.eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=1.5 / parameter.shape[1] ** 0.5)
            else:
                parameter.normal_(mean=0.0 if name.endswith("bias") else 1.0, std=0.2)
    return model.eval()


def logits_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """What transformers computes: ids [B, T] -> [B, T, V]."""
    with torch.no_grad():
        return model(ids, use_cache=False).logits


def saved(model: Any, directory: Path, **options: Any) -> Path:
    """The directory `save_pretrained` writes, with the tiny tokenizer in it."""
    model.save_pretrained(directory, **options)
    write_tokenizer(directory)
    return directory


def some_ids(num_rows: int, num_tokens: int, seed: int = 0) -> torch.Tensor:
    """Random token ids [B, T]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, _SIZES["vocab_size"], (num_rows, num_tokens), generator=generator)


def store_past_in_half(graph: Graph) -> None:
    """Round keys and values to float16 before anything attends to them, as the engine's cache does."""
    for operation in [operation for operation in graph.operations if operation.kind == "attention"]:
        q, *past = operation.operands
        stored = [emit(graph, "cast", x, name="stored", before=operation, dtype="f16") for x in past]
        read = [emit(graph, "cast", x, name="read", before=operation, dtype="f32") for x in stored]
        y = emit(graph, "attention", q, *read, name="y", before=operation, **operation.attributes)
        graph.substitute(operation, (y,))
