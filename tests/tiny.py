"""Random GGUF models of a few kilobytes: everything a real file has, small enough to run whole in a test.

The weights are random with scales that spread the logits, so that a greedy choice has a margin and a wrong
position, head or layer shows. Written with the `gguf` package; no engine code is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool|>")
"""Ids 0..3. <|im_end|> ends a turn (EOS), <|im_start|> opens one (BOS, never added), as in SmolLM2."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are tiny.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

_MERGES = (
    ("Ġ", "t"), ("h", "e"), ("i", "n"), ("e", "r"), ("Ġ", "a"), ("o", "n"), ("r", "e"), ("Ġt", "he"), ("a", "t"),
    ("Ġ", "s"), ("e", "n"), ("Ġ", "o"), ("n", "d"), ("i", "t"), ("o", "r"), ("Ġa", "nd"), ("in", "g"), ("e", "s"),
    ("o", "u"), ("Ġ", "w"), ("Ġ", "p"), ("a", "n"), ("s", "t"), ("l", "l"), ("Ġ", "f"), ("Ġ", "c"), ("d", "s"),
    ("Ġs", "t"), ("Ġp", "an"), ("Ġpan", "d"), ("Ċ", "Ċ"), ("ð", "Ł"), ("er", "s"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TinyShape:
    """Sizes in elements. heads * head_dim need not equal the embedding size."""

    layers: int = 2
    embedding: int = 96
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 160
    context_length: int = 1024
    rope_base: float = 10000.0
    norm_eps: float = 1e-5


def write_tiny_gguf(
    path: Path,
    *,
    seed: int = 0,
    dtype: str | Mapping[str, str] = "Q4_1",
    architecture: str = "llama",
    tied: bool = True,
    pre: str | None = None,
    extra_tokens: int = 0,
    chat_template: str | None = CHAT_TEMPLATE,
    **sizes: float,
) -> Path:
    """Write a random model and return its path.

    dtype: one format for every matrix ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1"), or one by role, e.g.
    {"default": "Q4_1", "token_embd": "Q8_0", "ffn_down": "F16"}; norms and biases are F32.
    architecture: "llama" (adjacent rope pairs) or "qwen2" (pairs i, i + D/2; QKV biases).
    tied: the head is the token embedding; else `output.weight` is written. extra_tokens: unused vocabulary entries.
    sizes: fields of TinyShape.
    """
    shape = TinyShape(**sizes)  # type: ignore[arg-type]
    tokens, types, merges = tiny_vocabulary(extra_tokens)
    writer = gguf.GGUFWriter(path, architecture)
    _write_shape(writer, shape, len(tokens))
    _write_vocabulary(writer, tokens, types, merges, pre or {"llama": "smollm", "qwen2": "qwen2"}[architecture])
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    for name, values in tiny_weights(shape, len(tokens), architecture, tied, seed).items():
        _write_tensor(writer, name, values, dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_vocabulary(extra_tokens: int = 0) -> tuple[list[str], list[int], list[str]]:
    """Tokens, token types and merges: control tokens, the 256 bytes, one token a merge, then unused ones."""
    merged = [left + right for left, right in _MERGES]
    unused = [f"<unused{index}>" for index in range(extra_tokens)]
    tokens = [*CONTROL_TOKENS, *byte_alphabet(), *merged, *unused]
    assert len(set(tokens)) == len(tokens)
    types = [gguf.TokenType.CONTROL] * len(CONTROL_TOKENS) + [gguf.TokenType.NORMAL] * (256 + len(merged))
    types += [gguf.TokenType.UNUSED] * extra_tokens
    return tokens, [int(kind) for kind in types], [f"{left} {right}" for left, right in _MERGES]


def byte_alphabet() -> list[str]:
    """The character that stands for each byte 0..255 in byte-level BPE (GPT-2's bytes_to_unicode)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(stand_ins)) for byte in range(256)]


def tiny_weights(shape: TinyShape, vocab_size: int, architecture: str, tied: bool, seed: int) -> dict[str, np.ndarray]:
    """All tensors in float32 as [outputs, inputs], by GGUF name.

    One channel of every norm is eight times as large as the rest, as in real models, so that about a quarter of the
    rows have a wide block.
    """
    random = np.random.default_rng(seed)
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def matrix(outputs: int, inputs: int, gain: float) -> np.ndarray:
        return (random.standard_normal((outputs, inputs)) * gain / np.sqrt(inputs)).astype(np.float32)

    def vector(size: int, mean: float) -> np.ndarray:
        return (mean + 0.2 * random.standard_normal(size)).astype(np.float32)

    def gamma() -> np.ndarray:
        values = vector(shape.embedding, 1.0)
        values[5] = 8.0
        return values

    weights = {"token_embd.weight": matrix(vocab_size, shape.embedding, 3.0)}
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        weights[f"{block}.attn_norm.weight"] = gamma()
        weights[f"{block}.attn_q.weight"] = matrix(query, shape.embedding, 1.5)
        weights[f"{block}.attn_k.weight"] = matrix(key, shape.embedding, 1.5)
        weights[f"{block}.attn_v.weight"] = matrix(key, shape.embedding, 1.5)
        if architecture == "qwen2":
            weights[f"{block}.attn_q.bias"] = vector(query, 0.0)
            weights[f"{block}.attn_k.bias"] = vector(key, 0.0)
            weights[f"{block}.attn_v.bias"] = vector(key, 0.0)
        weights[f"{block}.attn_output.weight"] = matrix(shape.embedding, query, 1.5)
        weights[f"{block}.ffn_norm.weight"] = gamma()
        weights[f"{block}.ffn_gate.weight"] = matrix(shape.ffn, shape.embedding, 1.5)
        weights[f"{block}.ffn_up.weight"] = matrix(shape.ffn, shape.embedding, 1.5)
        weights[f"{block}.ffn_down.weight"] = matrix(shape.embedding, shape.ffn, 1.5)
    weights["output_norm.weight"] = gamma()
    if not tied:
        weights["output.weight"] = matrix(vocab_size, shape.embedding, 3.0)
    return weights


def _write_shape(writer: gguf.GGUFWriter, shape: TinyShape, vocab_size: int) -> None:
    writer.add_name("tiny")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context_length)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.norm_eps)
    writer.add_vocab_size(vocab_size)
    if shape.heads * shape.head_dim != shape.embedding:
        writer.add_key_length(shape.head_dim)
        writer.add_value_length(shape.head_dim)


def _write_vocabulary(
    writer: gguf.GGUFWriter, tokens: list[str], types: list[int], merges: list[str], pre: str
) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(False)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)


def _write_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, dtype: str | Mapping[str, str]) -> None:
    role = name.removesuffix(".weight").rsplit(".", 1)[-1]
    by_role = {"default": dtype} if isinstance(dtype, str) else dtype
    chosen = "F32" if values.ndim == 1 else by_role.get(role, by_role["default"])
    kind = GGMLQuantizationType[chosen]
    writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
