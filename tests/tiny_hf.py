"""Hugging Face directories of a few kilobytes, written without transformers: the models of tests/tiny.py otherwise.

The same seed gives the model that `write_tiny_gguf` writes; rows of Q and K of a llama are in halves, as there.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.tiny import CHAT_TEMPLATE, CONTROL_TOKENS, TinyShape, tiny_vocabulary, tiny_weights

NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
}  # fmt: skip
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
SMOLLM = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}


def write_tiny_hf(
    directory: Path,
    *,
    model_type: str = "llama",
    seed: int = 0,
    dtype: type = np.float32,
    tied: bool = True,
    num_shards: int = 1,
    config: dict[str, object] | None = None,
    **sizes: float,
) -> Path:
    """Write a random model and return its directory. config: keys of config.json to change, or (None) to leave out."""
    shape = TinyShape(**sizes)  # type: ignore[arg-type]
    directory.mkdir(exist_ok=True)
    write_tokenizer(directory)
    num_tokens = len(tiny_vocabulary()[0])
    fields = tiny_config(shape, model_type, num_tokens, tied) | (config or {})
    write_json(directory / "config.json", {key: value for key, value in fields.items() if value is not None})
    architecture = "qwen2" if model_type == "qwen2" else "llama"
    weights = tiny_weights(shape, num_tokens, architecture, tied, seed)
    if architecture == "llama":
        weights = {name: in_halves(name, values, shape.head_dim) for name, values in weights.items()}
    write_weights(directory, {hf_name(name): values.astype(dtype) for name, values in weights.items()}, num_shards)
    return directory


def tiny_config(shape: TinyShape, model_type: str, num_tokens: int, tied: bool) -> dict[str, object]:
    """config.json of a shape."""
    return {
        "model_type": model_type, "hidden_size": shape.embedding, "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim, "vocab_size": num_tokens, "max_position_embeddings": shape.context_length,
        "rms_norm_eps": shape.norm_eps, "rope_theta": shape.rope_base, "tie_word_embeddings": tied,
        "hidden_act": "silu", "torch_dtype": "float32", "sliding_window": None if model_type == "llama" else 4096,
    }  # fmt: skip


def write_tokenizer(directory: Path, **changes: object) -> None:
    """tokenizer.json and tokenizer_config.json of the tiny vocabulary; changes: top-level keys of the first."""
    tokens, _, merges = tiny_vocabulary()
    flags = {"special": True, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": SMOLLM,
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(CONTROL_TOKENS)],
        "model": {"type": "BPE", "vocab": {token: index for index, token in enumerate(tokens)}, "merges": merges},
    }  # fmt: skip
    write_json(directory / "tokenizer.json", tokenizer | changes)
    settings = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "chat_template": CHAT_TEMPLATE}
    write_json(directory / "tokenizer_config.json", settings)


def write_weights(directory: Path, tensors: dict[str, np.ndarray], num_shards: int = 1) -> None:
    """One file, or several and their index."""
    if num_shards == 1:
        save_file(tensors, directory / "model.safetensors")
        return
    names, weight_map = list(tensors), {}
    for shard in range(num_shards):
        file, held = f"model-{shard + 1:05}-of-{num_shards:05}.safetensors", names[shard::num_shards]
        save_file({name: tensors[name] for name in held}, directory / file)
        weight_map |= dict.fromkeys(held, file)
    write_json(directory / "model.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def stored(directory: Path) -> dict[str, np.ndarray]:
    """The tensors of a directory of one file."""
    return load_file(directory / "model.safetensors")


def hf_name(name: str) -> str:
    """What transformers calls a tensor of a GGUF file."""
    *block, role, kind = name.split(".")
    return f"model.layers.{block[1]}.{NAMES[role]}.{kind}" if block else f"{NAMES[role]}.{kind}"


def in_halves(name: str, values: np.ndarray, head_dim: int) -> np.ndarray:
    """Rows of Q and K reordered from adjacent pairs (2i, 2i + 1) to halves (i, i + D/2)."""
    if ".attn_q." not in name and ".attn_k." not in name:
        return values
    return values.reshape(-1, head_dim // 2, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


def write_json(path: Path, value: object) -> None:
    """A JSON file."""
    path.write_text(json.dumps(value), encoding="utf-8")
