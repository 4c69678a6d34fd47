"""The passes in order, each between two levels of legality (verify/spec.py).

A pipeline is a list of passes; a pass that keeps whatever level it finds has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from unsay.compiler.dialect.verifier import Checked
from unsay.compiler.ir.core import Graph
from unsay.compiler.passes.assign_devices import assign_devices
from unsay.compiler.passes.cancel_reorders import cancel_reorders
from unsay.compiler.passes.canonicalise import canonicalise
from unsay.compiler.passes.cse import cse
from unsay.compiler.passes.dce import dce
from unsay.compiler.passes.fold_batch_norm import fold_batch_norm
from unsay.compiler.passes.fold_constants import fold_constants
from unsay.compiler.passes.fuse_attention import fuse_attention
from unsay.compiler.passes.fuse_attention_quantise import fuse_attention_quantise
from unsay.compiler.passes.fuse_conv_relu import fuse_conv_relu
from unsay.compiler.passes.fuse_ffn import fuse_ffn
from unsay.compiler.passes.fuse_gemm_bias_silu import fuse_gemm_bias_silu
from unsay.compiler.passes.fuse_norm_quantise import fuse_norm_quantise
from unsay.compiler.passes.fuse_qkv_rope import fuse_qkv_rope
from unsay.compiler.passes.fuse_residual import fuse_residual
from unsay.compiler.passes.fuse_residual_norm_quantise import fuse_residual_norm_quantise
from unsay.compiler.passes.fuse_rms_norm import fuse_rms_norm
from unsay.compiler.passes.fuse_silu_mul import fuse_silu_mul
from unsay.compiler.passes.insert_reorders import insert_reorders
from unsay.compiler.passes.pair_rope_rows import pair_rope_rows
from unsay.compiler.passes.plan_memory import plan_memory
from unsay.compiler.passes.propagate_precision import propagate_precision
from unsay.compiler.passes.quantise_activations import quantise_activations
from unsay.compiler.passes.schedule import schedule
from unsay.compiler.passes.specialise_batch import specialise_batch
from unsay.compiler.verify.spec import Level, check
from unsay.errors import IrError, PassError, RequestError


@dataclass(frozen=True, slots=True)
class Pass:
    """A rewrite of a graph in place; `run` returns how many times it applied.

    entry, exit: the levels it takes and leaves; both None for a pass that applies at any level and keeps it.
    """

    run: Callable[[Graph], int]
    entry: Level | None = None
    exit: Level | None = None

    @property
    def name(self) -> str:
        """The name of its function, which is that of its file."""
        return self.run.__name__


After: TypeAlias = Callable[[Pass, Graph, int], None]
"""Called after each pass, with how many times it applied."""

PIPELINE: tuple[Pass, ...] = (
    Pass(pair_rope_rows, Level.SEMANTIC, Level.SEMANTIC),
    Pass(quantise_activations, Level.SEMANTIC, Level.QUANTISED),
    Pass(cse),
    Pass(dce),
    Pass(fuse_silu_mul, Level.QUANTISED, Level.FUSED),
    Pass(fuse_ffn, Level.FUSED, Level.FUSED),
    Pass(fuse_qkv_rope, Level.FUSED, Level.FUSED),
    Pass(fuse_residual, Level.FUSED, Level.FUSED),
    Pass(fuse_norm_quantise, Level.FUSED, Level.FUSED),
    Pass(fuse_attention_quantise, Level.FUSED, Level.LOWERABLE),
)

TENSOR_PIPELINE: tuple[Pass, ...] = (
    Pass(canonicalise, Level.TENSOR, Level.TENSOR),
    Pass(fold_constants, Level.TENSOR, Level.TENSOR),
    Pass(cse),
    Pass(dce),
    Pass(fold_batch_norm, Level.TENSOR, Level.TENSOR),
    Pass(fuse_conv_relu, Level.TENSOR, Level.TENSOR),
    Pass(fuse_gemm_bias_silu, Level.TENSOR, Level.TENSOR),
    Pass(fuse_attention, Level.TENSOR, Level.TENSOR),
    Pass(fuse_rms_norm, Level.TENSOR, Level.TENSOR),
    Pass(fuse_residual_norm_quantise, Level.TENSOR, Level.TENSOR),
    Pass(specialise_batch, Level.TENSOR, Level.TENSOR),
    Pass(assign_devices, Level.TENSOR, Level.TENSOR),
    Pass(insert_reorders, Level.TENSOR, Level.PLACED),
    Pass(cancel_reorders, Level.PLACED, Level.PLACED),
    Pass(propagate_precision, Level.PLACED, Level.PLACED),
    Pass(cse),
    Pass(dce),
    Pass(schedule),
    Pass(plan_memory),
)
"""For graphs of front ends. What a pass needs to be told (devices, precision, batch) the graph says in its remarks."""

BY_NAME: dict[str, Pass] = {step.name: step for step in (*PIPELINE, *TENSOR_PIPELINE)}

UNFUSED: tuple[Pass, ...] = (
    Pass(pair_rope_rows, Level.SEMANTIC, Level.SEMANTIC),
    Pass(quantise_activations, Level.SEMANTIC, Level.QUANTISED),
    Pass(fuse_silu_mul, Level.QUANTISED, Level.LOWERABLE),
)
"""The least that lowers: the same bits as PIPELINE from other instructions. Tests compare the two."""


PIPELINES: dict[str, tuple[Pass, ...]] = {"step": PIPELINE, "tensor": TENSOR_PIPELINE}
"""Pipelines by name, as `unsay opt --passes` takes them."""


def run_passes(graph: Graph, passes: Sequence[Pass] = PIPELINE, after: After | None = None) -> Graph:
    """Run the passes on the graph, and return it, legal where the last of them leaves it.

    Raises PassError naming the pass that broke a rule; IrError if the graph that came in was not legal.
    """
    checked: Checked = {}
    level: Level | None = None
    for step in passes:
        level = _enter(graph, step, level, checked)
        count = step.run(graph)
        try:
            check(graph, level := step.exit or level, checked)
        except IrError as error:
            raise PassError(f"after {step.name}: {error.message}", error.line, error.column) from error
        if after is not None:
            after(step, graph, count)
    return graph


def find_passes(names: Iterable[str]) -> list[Pass]:
    """The passes that have these names, a pipeline's name standing for all of its own; raises RequestError."""
    found: list[Pass] = []
    for name in names:
        if name not in BY_NAME and name not in PIPELINES:
            raise RequestError(f"no pass {name!r}; there are: {', '.join(sorted([*BY_NAME, *PIPELINES]))}")
        found += PIPELINES.get(name) or [BY_NAME[name]]
    return found


def _enter(graph: Graph, step: Pass, level: Level | None, checked: Checked) -> Level:
    """The level the graph is at when the pass takes it, checked unless the pass before has left it there."""
    wanted = step.entry or level or Level.TENSOR
    if wanted != level:
        try:
            check(graph, wanted, checked)
        except IrError as error:
            message = f"{step.name} takes a graph of level {wanted.name.lower()}: {error.message}"
            raise IrError(message, error.line, error.column) from error
    return wanted
