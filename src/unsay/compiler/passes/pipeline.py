"""The passes in order, each between two levels of legality (verify/spec.py).

A pipeline is a list of passes; a pass that keeps whatever level it finds has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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

BY_NAME: dict[str, Pass] = {step.name: step for step in PIPELINE}

UNFUSED: tuple[Pass, ...] = (
    Pass(pair_rope_rows, Level.SEMANTIC, Level.SEMANTIC),
    Pass(quantise_activations, Level.SEMANTIC, Level.QUANTISED),
    Pass(fuse_silu_mul, Level.QUANTISED, Level.LOWERABLE),
)
"""The least that lowers: the same bits as PIPELINE from other instructions. Tests compare the two."""


PIPELINES: dict[str, tuple[Pass, ...]] = {"step": PIPELINE}
"""Pipelines by name, as `unsay opt --passes` takes them."""


def run_passes(graph: Graph, passes: Sequence[Pass] = PIPELINE, after: After | None = None) -> Graph:
    """Run the passes on the graph, and return it, legal where the last of them leaves it.

    Raises PassError naming the pass that broke a rule; IrError if the graph that came in was not legal.
    """
    checked: set[Operation] = set()
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


def _enter(graph: Graph, step: Pass, level: Level | None, checked: set[Operation]) -> Level:
    """The level the graph is at when the pass takes it, checked unless the pass before has left it there."""
    wanted = step.entry or level or Level.TENSOR
    if wanted != level:
        try:
            check(graph, wanted, checked)
        except IrError as error:
            message = f"{step.name} takes a graph of level {wanted.name.lower()}: {error.message}"
            raise IrError(message, error.line, error.column) from error
    return wanted
