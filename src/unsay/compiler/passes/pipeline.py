"""The passes in order, each between two levels of legality (verify/spec.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from unsay.compiler.ir.core import Graph, Operation
from unsay.compiler.passes.cse import cse
from unsay.compiler.passes.dce import dce
from unsay.compiler.passes.fuse_attention_quantise import fuse_attention_quantise
from unsay.compiler.passes.fuse_ffn import fuse_ffn
from unsay.compiler.passes.fuse_norm_quantise import fuse_norm_quantise
from unsay.compiler.passes.fuse_qkv_rope import fuse_qkv_rope
from unsay.compiler.passes.fuse_residual import fuse_residual
from unsay.compiler.passes.fuse_silu_mul import fuse_silu_mul
from unsay.compiler.passes.pair_rope_rows import pair_rope_rows
from unsay.compiler.passes.quantise_activations import quantise_activations
from unsay.compiler.verify.spec import Level, check
from unsay.errors import IrError, PassError


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of a graph in place; `run` returns how many times it applied."""

    run: Callable[[Graph], int]
    entry: Level
    exit: Level

    @property
    def name(self) -> str:
        """The name of its function, which is that of its file."""
        return self.run.__name__


PIPELINE: tuple[Pass, ...] = (
    Pass(pair_rope_rows, Level.SEMANTIC, Level.SEMANTIC),
    Pass(quantise_activations, Level.SEMANTIC, Level.QUANTISED),
    Pass(cse, Level.QUANTISED, Level.QUANTISED),
    Pass(dce, Level.QUANTISED, Level.QUANTISED),
    Pass(fuse_silu_mul, Level.QUANTISED, Level.FUSED),
    Pass(fuse_ffn, Level.FUSED, Level.FUSED),
    Pass(fuse_qkv_rope, Level.FUSED, Level.FUSED),
    Pass(fuse_residual, Level.FUSED, Level.FUSED),
    Pass(fuse_norm_quantise, Level.FUSED, Level.FUSED),
    Pass(fuse_attention_quantise, Level.FUSED, Level.LOWERABLE),
)

BY_NAME: dict[str, Pass] = {step.name: step for step in PIPELINE}

UNFUSED: tuple[Pass, ...] = (
    Pass(pair_rope_rows, Level.SEMANTIC, Level.SEMANTIC),
    Pass(quantise_activations, Level.SEMANTIC, Level.QUANTISED),
    Pass(fuse_silu_mul, Level.QUANTISED, Level.LOWERABLE),
)
"""The least that lowers: the same bits as PIPELINE from other instructions. Tests compare the two."""


def run_passes(graph: Graph, passes: Sequence[Pass] = PIPELINE) -> Graph:
    """Run the passes on the graph, and return it, legal where the last of them leaves it.

    Raises PassError naming the pass that broke a rule; IrError if the graph that came in was not legal.
    """
    checked: set[Operation] = set()
    level = passes[0].entry
    check(graph, level, checked)
    for step in passes:
        assert step.entry == level, (step.name, step.entry, level)
        step.run(graph)
        try:
            check(graph, step.exit, checked)
        except IrError as error:
            raise PassError(f"after {step.name}: {error}") from error
        level = step.exit
    return graph
