"""One stage of a compilation, for reading or for another tool: no weights are packed and nothing is stored.

llmir    the graph, when all passes have run        avm    the program, as `unsay exec` reads it
llvm     LLVM IR of the whole step, as it was written, before LLVM's own passes
asm      assembly of it for the target              object a relocatable object file for the target
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.llvm import translate
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.limits import LIMITS
from unsay.compiler.lower import lower
from unsay.compiler.passes.pipeline import PIPELINE, After
from unsay.compiler.pipeline import load, to_graph
from unsay.compiler.verify.validate import run_validated
from unsay.isa.targets import find_target

Stage: TypeAlias = Literal["llmir", "avm", "llvm", "asm", "object"]


def compile_to(source: Path, target: str, stage: Stage, after: After | None = None) -> bytes:
    """What the model is at this stage, as bytes (text in UTF-8); `after` sees the graph after each pass.

    Raises ModelFileError, UnsupportedError, PassError or TargetError.
    """
    chosen = find_target(target)
    loaded = load(source)
    graph = to_graph(loaded)
    run_validated(graph, PIPELINE, after)
    if stage == "llmir":
        return print_graph(graph).encode()
    lowered = lower(graph, loaded.spec, LIMITS.max_tokens, LIMITS.max_rows)
    if stage == "avm":
        return lowered.program.to_bytes()
    limits = (LIMITS.max_tokens, LIMITS.max_rows, LIMITS.max_threads)
    text = step_text(lowered.program, loaded.spec, dot_unit(chosen), *limits, lowered.arena_bytes)
    return text.encode() if stage == "llvm" else translate(text, chosen, stage)
