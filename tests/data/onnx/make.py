"""A tiny Llama and a small CNN as torch.onnx exports them: the .onnx files in this directory.

Run with torch, transformers, onnx and onnxscript installed: python tests/data/onnx/make.py
Weights are random. Beside each model lies NAME.npz with inputs, and what PyTorch makes of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from transformers import LlamaConfig, LlamaForCausalLM

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


def llama() -> LlamaForCausalLM:
    """Two layers, two query heads for each of two key heads."""
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, max_position_embeddings=64, attn_implementation="eager",
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def save(name: str, model: torch.nn.Module, argument: str, value: torch.Tensor, dynamic: dict[int, str] | None) -> None:
    """Export the model, with the dimensions of its argument that are dynamic."""
    shapes = None if dynamic is None else {argument: {axis: torch.export.Dim(dim) for axis, dim in dynamic.items()}}
    program = torch.onnx.export(
        model, (value,), input_names=[argument], output_names=["y"], dynamo=True, dynamic_shapes=shapes
    )
    assert program is not None
    exported = program.model_proto
    for noted in (exported, exported.graph, *exported.graph.node):
        noted.ClearField("metadata_props")  # stack traces with this machine's paths, twice as large as the model
    exported.graph.ClearField("value_info")
    onnx.save(exported, HERE / f"{name}.onnx")
    with torch.no_grad():
        np.savez(HERE / f"{name}.npz", y=model(value).numpy(), **{argument: value.numpy()})


def main() -> None:
    """Write the files."""
    torch.manual_seed(7)
    cnn = Cnn()
    with torch.no_grad():
        cnn.train()(torch.randn(64, 3, 16, 16))  # running statistics that are no identity
    save("cnn", cnn.eval(), "image", torch.randn(2, 3, 16, 16), {0: "N"})
    ids = torch.randint(0, 64, (2, 7))
    save("llama", Logits(llama()), "input_ids", ids, None)
    save("llama_dynamic", Logits(llama()), "input_ids", ids, {0: "B", 1: "T"})


if __name__ == "__main__":
    main()
