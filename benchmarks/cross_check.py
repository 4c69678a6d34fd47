"""Compares tests/oracle.py with `transformers` in float64 on random models of both architectures.

Run: python -m benchmarks.cross_check [--json]      (needs torch and transformers, which nothing else here does)
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.report import Report, parser
from tests.oracle import Oracle
from tests.tiny import TinyShape, tiny_vocabulary, tiny_weights, write_tiny_gguf

_CLASSES = {"llama": "Llama", "qwen2": "Qwen2"}
_SHAPE: dict[str, Any] = {"layers": 3, "embedding": 96, "heads": 6, "kv_heads": 2, "head_dim": 16, "ffn": 160}
_NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def main() -> None:
    """Print the largest difference of a logit for each architecture."""
    report = Report(parser(__doc__).parse_args())
    for architecture in _CLASSES:
        with tempfile.TemporaryDirectory() as directory:
            path = write_tiny_gguf(
                Path(directory) / "tiny.gguf", dtype="F32", architecture=architecture, tied=False, **_SHAPE
            )
            ids = [int(token) for token in np.random.default_rng(1).integers(0, 290, 70)]
            ours = Oracle(path).logits(ids)
        theirs = _transformers_logits(architecture, ids)
        difference = 1e6 * float(np.abs(ours - theirs).max())
        report.add(architecture, difference_millionths=difference, largest_logit=float(ours.max()))


def _transformers_logits(architecture: str, ids: list[int]) -> np.ndarray:
    shape, vocab_size = TinyShape(**_SHAPE), len(tiny_vocabulary()[0])
    name = _CLASSES[architecture]
    config = getattr(transformers, f"{name}Config")(
        vocab_size=vocab_size, hidden_size=shape.embedding, intermediate_size=shape.ffn, rms_norm_eps=shape.norm_eps,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, tie_word_embeddings=False, attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForCausalLM")(config).to(torch.float64).eval()
    weights = tiny_weights(shape, vocab_size, architecture, False, 0)
    state = {_their_name(name): _their_layout(name, values, shape, architecture) for name, values in weights.items()}
    model.load_state_dict(state)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def _their_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_NAMES[parts[2]]}.{parts[3]}"
    return f"{_TOP_NAMES[parts[0]]}.{parts[1]}"


def _their_layout(name: str, values: np.ndarray, shape: TinyShape, architecture: str) -> torch.Tensor:
    """A llama file pairs rope rows (2i, 2i+1); transformers pairs (i, i + D/2)."""
    if architecture == "llama" and ("attn_q" in name or "attn_k" in name):
        heads = values.reshape(-1, shape.head_dim // 2, 2, shape.embedding)
        values = heads.swapaxes(1, 2).reshape(values.shape)
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.float64)


if __name__ == "__main__":
    main()
