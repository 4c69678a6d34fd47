"""AVM program -> machine code of one native step.

    i32 step(StepArgs* args, i32 thread)     thread's part of the whole program; 1 if all stopped at an interrupt
        kernel(args, thread, threads, count, tensors ...)        one call or a few per instruction (instructions.py),
        if barrier(args, threads): return 1                      a barrier after each call (body.py)

Layers that are alike are one loop (turns.py), the rest of a step is a straight line. Kernels are functions made for a
format and shape and shared by all layers, and by both programs of an image that has a second one for the fast class:
then a step is the one or the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from unsay.compiler.codegen.backends import Code, Step
from unsay.compiler.codegen.body import StepBody
from unsay.compiler.codegen.builder import I32, PTR, Function, Module
from unsay.compiler.codegen.instructions import write_stretch
from unsay.compiler.codegen.kernels.dot import DotUnit, dot_unit
from unsay.compiler.codegen.kernels.scan import add_scan
from unsay.compiler.codegen.kernels.soft import SUBSTITUTES
from unsay.compiler.codegen.kernels.sync import add_sync
from unsay.compiler.codegen.translate import ATTRIBUTES, machine_code
from unsay.compiler.codegen.turns import Stretch, straight, stretches
from unsay.errors import UnsupportedError
from unsay.image import ModelSpec
from unsay.isa.abi import StepArgs
from unsay.isa.formats import ROW_GROUP
from unsay.isa.kv import MOST_INT8_DIM
from unsay.isa.targets import find_target

ENTRIES = ("step", "run", "worker", "close", "survey", "race")

_PARAMETERS = [(PTR, "args"), (I32, "thread")]


def emit(step: Step, target: str) -> Code:
    """Machine code of a step.

    Raises TargetError for an unknown target, ProgramError for a program that is not a step, UnsupportedError for
    a shape the kernels do not do.
    """
    chosen = find_target(target)
    blob, symbols = machine_code(lambda: step_text(step, dot_unit(chosen)), chosen)
    return Code(blob, {name: symbols[name] for name in ENTRIES})


def step_text(step: Step, unit: DotUnit, in_turns: bool = True) -> str:
    """LLVM IR text of a step; a straight line of calls without `in_turns`."""
    _check_heads(step.spec)
    header = f"; {step.spec.name}: one step of up to {step.max_tokens} tokens, {step.max_rows} logit rows\n{ATTRIBUTES}"
    module = Module(header, SUBSTITUTES[unit.architecture])
    cut = stretches if in_turns else straight
    program = cut(step.program)
    if step.fast is None:
        _define(module, step, unit, "step", program, linkage="")
    else:
        _define(module, step, unit, "exact_step", program)
        _define(module, step, unit, "fast_step", cut(step.fast))
        _define_choice(module)
    add_sync(module, unit.architecture)
    add_scan(module)
    return module.text()


def _check_heads(spec: ModelSpec) -> None:
    if spec.head_dim % ROW_GROUP:
        raise UnsupportedError(f"head size {spec.head_dim} is not a multiple of {ROW_GROUP}, which the kernels need")
    if spec.kv_layout.is_scaled and spec.head_dim > MOST_INT8_DIM:
        raise UnsupportedError(f"head size {spec.head_dim} is beyond {MOST_INT8_DIM} for int8 pages: use --kv f16")


def _define(
    module: Module, step: Step, unit: DotUnit, name: str, program: Iterable[Stretch], linkage: str = "internal "
) -> None:
    def write(f: Function) -> None:
        body = StepBody(f, step, unit)
        for stretch in program:
            write_stretch(body, stretch)
        body.settle()
        f.result_value = f.constant(I32, 0)

    doc = "this thread's part of the program; 1 if stopped by the interrupt word"
    module.define(name, _PARAMETERS, write, doc, result=I32, linkage=linkage, inline=not linkage)


def _define_choice(module: Module) -> None:
    def write(f: Function) -> None:
        result = f.slot(I32, 0)
        is_fast = f.load(I32, f["args"].at(StepArgs.is_fast.offset), align=4)
        for condition, name in (("eq", "exact_step"), ("ne", "fast_step")):
            with f.when(is_fast.compare(condition, 0)):
                result.set(f.call(name, I32, f["args"], f["thread"]))
        f.result_value = result.get()

    module.define("step", _PARAMETERS, write, "the step of the class that the tokens are of", result=I32, linkage="")
