"""A tiny Llama and a small CNN as torch.onnx exports them: the .onnx files in this directory.

Run with torch, transformers, onnx and onnxscript installed: python tests/data/onnx/make.py
Weights are random. Beside each model lies NAME.npz with inputs, and what PyTorch makes of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch.export import Dim
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent


class Cnn(torch.nn.Module):
    """Convolutions with and without padding, stride and groups; batch norm, pools, a residual, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.depthwise = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.pointwise = torch.nn.Conv2d(8, 16, 1, stride=2)
        self.last = torch.nn.Conv2d(16, 16, 3, padding=2, dilation=2)
        self.head = torch.nn.Sequential(torch.nn.Linear(16, 12), torch.nn.Hardswish(), torch.nn.Linear(12, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(image)))
        x = x + torch.nn.functional.relu6(self.depthwise(x))
        x = torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1)
        x = torch.relu(self.last(torch.relu(self.pointwise(x))))
        x = torch.nn.functional.avg_pool2d(x, 2, stride=1, padding=1)
        return self.head(x.mean(dim=(2, 3))).softmax(dim=-1)


class Logits(torch.nn.Module):
    """The logits alone."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, use_cache=False).logits


class Step(torch.nn.Module):
    """One call with a past: the logits, then keys and values of both layers with the new tokens'."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, k0: torch.Tensor, v0: torch.Tensor,
        k1: torch.Tensor, v1: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        cache = DynamicCache()
        cache.update(k0, v0, 0)
        cache.update(k1, v1, 1)
        made = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        layers = made.past_key_values.layers
        return made.logits, layers[0].keys, layers[0].values, layers[1].keys, layers[1].values


def llama() -> LlamaForCausalLM:
    """Two layers, two query heads for each of two key heads."""
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def save(name: str, model: torch.nn.Module, inputs: dict[str, torch.Tensor], dynamic: dict[str, Any] | None) -> None:
    """Export the model, with the dimensions of its inputs that are dynamic."""
    program = torch.onnx.export(
        model, tuple(inputs.values()), input_names=list(inputs), dynamo=True, dynamic_shapes=dynamic
    )
    assert program is not None
    exported = program.model_proto
    for noted in (exported, exported.graph, *exported.graph.node):
        noted.ClearField("metadata_props")  # stack traces with this machine's paths, twice as large as the model
    exported.graph.ClearField("value_info")
    onnx.save(exported, HERE / f"{name}.onnx")
    with torch.no_grad():
        made = model(*inputs.values())
    made = made if isinstance(made, tuple) else (made,)
    outputs = {f"out{index}": array.numpy() for index, array in enumerate(made)}
    np.savez(HERE / f"{name}.npz", **outputs, **{key: array.numpy() for key, array in inputs.items()})


def main() -> None:
    """Write the files."""
    torch.manual_seed(7)
    cnn = Cnn()
    with torch.no_grad():
        cnn.train()(torch.randn(64, 3, 16, 16))  # running statistics that are no identity
    B, P, T = Dim("B"), Dim("P"), Dim("T")
    save("cnn", cnn.eval(), {"image": torch.randn(2, 3, 16, 16)}, {"image": {0: Dim("N")}})
    ids = torch.randint(0, 64, (2, 7))
    save("llama", Logits(llama()), {"input_ids": ids}, None)
    save("llama_dynamic", Logits(llama()), {"input_ids": ids}, {"input_ids": {0: B, 1: T}})
    past = {name: torch.randn(2, 2, 5, 8) for name in ("k0", "v0", "k1", "v1")}
    inputs = {"input_ids": ids, "attention_mask": torch.ones(2, 12, dtype=torch.int64), **past}
    dynamic = {"input_ids": {0: B, 1: T}, "attention_mask": {0: B, 1: Dim.DYNAMIC}}
    save("llama_cache", Step(llama()), inputs, {**dynamic, **{key: {0: B, 2: P} for key in past}})


if __name__ == "__main__":
    main()
