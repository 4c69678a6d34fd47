"""A block as PyTorch writes it, through torch.export and the tensor passes: what is fused, and what it computes."""

from collections import Counter

import numpy as np
import torch
from torch import nn

from unsay.compiler.frontend.torch_export import import_torch_export
from unsay.compiler.ir.evaluate import evaluate
from unsay.compiler.passes.pipeline import TENSOR_PIPELINE
from unsay.compiler.verify.validate import run_validated

_WIDTH, _HEADS = 32, 2


class Block(nn.Module):
    """Attention spelled out, a residual, an RMS norm spelled out, and a gated product."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(_WIDTH, _WIDTH) for _ in range(3))
        self.gate, self.up = nn.Linear(_WIDTH, 48), nn.Linear(_WIDTH, 48, bias=False)
        self.gamma = nn.Parameter(torch.rand(_WIDTH) + 0.5)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).view(*x.shape[:2], _HEADS, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / (_WIDTH // _HEADS) ** 0.5 + mask
        x = x + (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
        n = self.gamma * (x * torch.rsqrt(x.to(torch.float32).pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)
        return nn.functional.silu(self.gate(n)) * self.up(n)


def test_a_block_is_fused_and_computes_the_same():
    torch.manual_seed(3)
    block = Block().eval()
    x, mask = torch.randn(2, 5, _WIDTH), torch.full((5, 5), -torch.inf).triu(1)
    tokens = torch.export.Dim("T", min=2, max=64)
    program = torch.export.export(block, (x, mask), dynamic_shapes=({1: tokens}, {0: tokens, 1: tokens}), strict=False)
    imported = import_torch_export(program)
    run_validated(imported.graph, TENSOR_PIPELINE)
    kinds = Counter(operation.kind for operation in imported.graph.operations)
    assert (kinds["sdpa"], kinds["add_rms_norm"], kinds["matmul_silu"]) == (1, 1, 1)
    assert not kinds.keys() & {"softmax", "reduce_mean", "rsqrt", "silu", "sigmoid", "pow", "cast"}
    (got,) = evaluate(imported.graph, {"x": x.numpy(), "mask": mask.numpy()}, imported.weights)
    expected = block(x, mask).detach().numpy()
    assert np.ptp(expected) > 0.1 and np.abs(got - expected).max() < 1e-5
