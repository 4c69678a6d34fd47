"""One stage of a compilation, for reading or for another tool: no weights are packed and nothing is stored.

llmir    the graph, when all passes have run        avm    the program, as `unsay exec` reads it
llvm     LLVM IR of the whole step, as it was written, before LLVM's own passes
asm      assembly of it for the target              object a relocatable object file for the target
files    whatever the target's back end makes: kernels of a GPU in its language, machine code of a CPU
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from unsay.compiler.codegen.backends import find_backend
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.translate import translate
from unsay.compiler.compile import check_kinds
from unsay.compiler.ir.printer import print_graph
from unsay.compiler.passes.pipeline import PIPELINE, After
from unsay.compiler.pipeline import load, lowered_step, to_graph
from unsay.compiler.verify.validate import run_validated
from unsay.errors import TargetError
from unsay.isa.classes import EXACT
from unsay.isa.kv import AUTO
from unsay.isa.targets import find_target, is_cpu_target

Stage: TypeAlias = Literal["llmir", "avm", "llvm", "asm", "object"]
"""What is one text or one file."""


def compile_to(
    source: Path, target: str, stage: Stage, after: After | None = None, kv: str = AUTO, prefill: str = EXACT
) -> bytes:
    """What the model is at this stage, as bytes (text in UTF-8); `after` sees the graph after each pass.

    The program is that of the class of prompts; code is of all classes.

    Raises ModelFileError, UnsupportedError, PassError or TargetError.
    """
    check_kinds(target, kv, prefill)
    backend = find_backend(target)
    if stage not in ("llmir", "avm") and not is_cpu_target(target):
        raise TargetError(f"{target} has no {stage}: it makes {backend.emitter.makes}; write that with --emit files")
    loaded = load(source, kv, prefill)
    graph = to_graph(loaded)
    run_validated(graph, PIPELINE, after)
    if stage == "llmir":
        return print_graph(graph).encode()
    step = lowered_step(graph, loaded.spec, target)
    if stage == "avm":
        return (step.fast or step.program).to_bytes()
    chosen = find_target(target)
    text = step_text(step, dot_unit(chosen))
    return text.encode() if stage == "llvm" else translate(text, chosen, stage)


def target_files(
    source: Path, target: str, after: After | None = None, kv: str = AUTO, prefill: str = EXACT
) -> Mapping[str, bytes]:
    """What the back end of a target makes of the model, by file name. Raises as compile_to."""
    check_kinds(target, kv, prefill)
    backend = find_backend(target)
    loaded = load(source, kv, prefill)
    graph = to_graph(loaded)
    run_validated(graph, PIPELINE, after)
    return backend.emitter.emit(lowered_step(graph, loaded.spec, target)).files
