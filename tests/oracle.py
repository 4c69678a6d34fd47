"""An independent forward pass: NumPy, float64, dequantised weights, no engine code.

It reads the file with the `gguf` package and computes the model as its papers describe it: RMS norm, rotary
positions, grouped-query attention, SwiGLU (llama; qwen2 adds QKV biases and pairs rope dims i and i + D/2). It is what
the engine's accuracy is measured against, never a test of bits.

Cross-check: benchmarks/cross_check.py compares it with `transformers` on random models of both architectures. The
largest difference was 2e-5 on logits up to 13: what remains is that `transformers` computes norms and rotary angles
in float32 even when the model is float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]


@dataclass(slots=True)
class OracleCache:
    """Keys and values of the tokens so far: per layer two arrays [t, K, D] float64."""

    layers: list[tuple[Float64Array, Float64Array]] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens held."""
        return len(self.layers[0][0]) if self.layers else 0


class Oracle:
    """One model's weights in float64 and the forward pass over them."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        self._weights = {
            tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
            for tensor in reader.tensors
        }
        fields = {name: reader.fields[name].contents() for name in reader.fields if not name.startswith("tokenizer.")}
        architecture = fields["general.architecture"]
        self._is_neox = {"llama": False, "qwen2": True}[architecture]
        self.num_layers = int(fields[f"{architecture}.block_count"])
        self._num_heads = int(fields[f"{architecture}.attention.head_count"])
        self._num_kv_heads = int(fields[f"{architecture}.attention.head_count_kv"])
        self._eps = float(fields[f"{architecture}.attention.layer_norm_rms_epsilon"])
        self._rope_base = float(fields[f"{architecture}.rope.freq_base"])
        self._head_dim = len(self._weights["blk.0.attn_q.weight"]) // self._num_heads

    def logits(self, token_ids: list[int]) -> Float64Array:
        """Next-token logits [T, V] at every position of one document."""
        return self.forward(token_ids, OracleCache())

    def forward(self, token_ids: list[int], cache: OracleCache) -> Float64Array:
        """Append T tokens to the cache; logits [T, V] at each of them."""
        start = cache.length
        x = self._weights["token_embd.weight"][token_ids]
        for layer in range(self.num_layers):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm.weight"), start, cache)
            x = x + self._feed_forward(layer, self._norm(x, f"blk.{layer}.ffn_norm.weight"))
        head = self._weights.get("output.weight", self._weights["token_embd.weight"])
        return self._norm(x, "output_norm.weight") @ head.T

    def _norm(self, x: Float64Array, gamma: str) -> Float64Array:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self._eps) * self._weights[gamma]

    def _linear(self, x: Float64Array, name: str) -> Float64Array:
        y = x @ self._weights[f"{name}.weight"].T
        bias = self._weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def _attention(self, layer: int, x: Float64Array, start: int, cache: OracleCache) -> Float64Array:
        num_tokens, block = len(x), f"blk.{layer}"
        query = self._linear(x, f"{block}.attn_q").reshape(num_tokens, self._num_heads, self._head_dim)
        key = self._linear(x, f"{block}.attn_k").reshape(num_tokens, self._num_kv_heads, self._head_dim)
        value = self._linear(x, f"{block}.attn_v").reshape(num_tokens, self._num_kv_heads, self._head_dim)
        keys, values = self._append(cache, layer, self._rotate(key, start), value)
        out = np.empty_like(query)
        query = self._rotate(query, start) / np.sqrt(self._head_dim)
        hidden = np.arange(len(keys)) > start + np.arange(num_tokens)[:, None]
        for head in range(self._num_heads):
            shared = head * self._num_kv_heads // self._num_heads
            scores = np.where(hidden, -np.inf, query[:, head] @ keys[:, shared].T)
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=-1, keepdims=True) @ values[:, shared]
        return self._linear(out.reshape(num_tokens, -1), f"{block}.attn_output")

    @staticmethod
    def _append(
        cache: OracleCache, layer: int, key: Float64Array, value: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        if layer == len(cache.layers):
            cache.layers.append((key, value))
        else:
            keys, values = cache.layers[layer]
            cache.layers[layer] = (np.concatenate((keys, key)), np.concatenate((values, value)))
        return cache.layers[layer]

    def _rotate(self, x: Float64Array, start: int) -> Float64Array:
        """Rotary positions on [T, heads, D], the first token at `start`."""
        half = self._head_dim // 2
        frequencies = self._rope_base ** (-np.arange(half) / half)
        angles = np.multiply.outer(np.arange(start, start + len(x)), frequencies)[:, None, :]
        first, second = (x[..., :half], x[..., half:]) if self._is_neox else (x[..., 0::2], x[..., 1::2])
        rotated = (
            first * np.cos(angles) - second * np.sin(angles),
            second * np.cos(angles) + first * np.sin(angles),
        )
        if self._is_neox:
            return np.concatenate(rotated, axis=-1)
        return np.stack(rotated, axis=-1).reshape(x.shape)

    def _feed_forward(self, layer: int, x: Float64Array) -> Float64Array:
        gate = self._linear(x, f"blk.{layer}.ffn_gate")
        with np.errstate(over="ignore"):
            hidden = gate / (1.0 + np.exp(-gate)) * self._linear(x, f"blk.{layer}.ffn_up")
        return self._linear(hidden, f"blk.{layer}.ffn_down")


def log_softmax(logits: NDArray[np.floating]) -> Float64Array:
    """Log-probabilities along the last axis, float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
