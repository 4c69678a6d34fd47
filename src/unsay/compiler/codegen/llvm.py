"""LLVM, through llvmlite: IR text in, linked machine code out. The only module that imports llvmlite.

Floating point stays as written: no fast-math flag is ever emitted, denormals are IEEE, nothing is contracted;
"no-builtins" keeps LLVM from turning a loop into a call of memset or memcpy, which nothing here could resolve.
"""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from unsay.compiler.codegen.elf import link
from unsay.isa.targets import Target

ATTRIBUTES = (
    'attributes #0 = { nounwind "no-builtins" "denormal-fp-math"="ieee,ieee" "no-trapping-math"="true" '
    '"min-legal-vector-width"="512" }'
)
"""What `#0` stands for in the emitted text: part of every module."""


_KEEP_ORDER = ("--pre-RA-sched=source", "--enable-misched=false")
"""The tiles are written in an order that fits the registers; LLVM's schedulers would spill them."""


def compile_module(text: str, target: Target) -> tuple[bytes, dict[str, int]]:
    """(position-independent code, entry offsets) of IR text; LLVM's own words are raised if it does not parse."""
    machine = _target_machine(target)
    return link(machine.emit_object(_optimised(text, machine, target)))


def assembly(text: str, target: Target) -> str:
    """Assembly of IR text, as a person or a test would read it."""
    machine = _target_machine(target)
    return machine.emit_assembly(_optimised(text, machine, target))


def _optimised(text: str, machine: llvm.TargetMachine, target: Target) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.slp_vectorization = False
    options.loop_vectorization = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return module


def _target_machine(target: Target) -> llvm.TargetMachine:
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.llvm_cpu, features=target.llvm_features, opt=3, reloc="pic", codemodel="small"
    )


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    for option in _KEEP_ORDER:
        llvm.set_option("unsay", option)
