"""Memory of a step's own, in the arena behind the program's tensors.

offset + 0              attention states, of the parts of a few tokens             (kernels/attention.py)
offset + states_bytes   rows f32, made by an instruction that quantises them last: attention's output, an FFN's hidden
"""

from __future__ import annotations

from typing import NamedTuple

from unsay.compiler.codegen.kernels.attention import scratch_states, state_bytes
from unsay.image import ModelSpec


class Scratch(NamedTuple):
    """Bytes of both."""

    states_bytes: int
    rows_bytes: int

    @property
    def num_bytes(self) -> int:
        """Of the whole."""
        return self.states_bytes + self.rows_bytes


def step_scratch(spec: ModelSpec, max_tokens: int) -> Scratch:
    """What a step of up to so many tokens needs, on any number of threads."""
    state = state_bytes(spec.num_heads // spec.num_kv_heads, spec.head_dim)
    widest = max(spec.num_heads * spec.head_dim, spec.ffn_size)
    return Scratch(scratch_states(spec.num_kv_heads, spec.context_length) * state, max_tokens * widest * 4)
