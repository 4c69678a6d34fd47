"""What stands in for an executor when a program is run without a model: it computes nothing and says so."""

from __future__ import annotations

from unsay.core import Batch, Float32View
from unsay.errors import MachineError
from unsay.image import ModelSpec
from unsay.runtime.interpreted import InterpretedRuns

_SPEC = ModelSpec(
    name="none", architecture="none", num_layers=1, embedding_size=0, num_heads=1, num_kv_heads=1, head_dim=16,
    ffn_size=0, vocab_size=0, context_length=65536, norm_eps=0.0, rope_base=0.0,
)  # fmt: skip


class UnlinkedExecutor(InterpretedRuns):
    """An Executor (see runtime.executor) without a model. Tensor instructions still run: they need none."""

    spec = _SPEC
    max_tokens = 512
    max_rows = 64

    def run(self, batch: Batch) -> list[Float32View] | None:
        """Refuse."""
        raise MachineError("STEP runs the linked model and there is none: name one with --model, or .model in the text")
