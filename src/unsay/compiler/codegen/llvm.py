"""LLVM, through llvmlite: IR text in, an object file or assembly out. The only module that imports llvmlite.

Floating point stays as written: no fast-math flag is ever emitted, denormals are IEEE, nothing is contracted;
"no-builtins" keeps LLVM from turning a loop into a call of memset or memcpy, which nothing here could resolve.

As a script (translate.py): `python -m unsay.compiler.codegen.llvm FORM NAME TRIPLE CPU FEATURES`, IR text in, object
file or assembly out.
"""

from __future__ import annotations

import signal
import sys
from functools import cache

import llvmlite.binding as llvm

from unsay.isa.targets import Target

_KEEP_ORDER = ("--pre-RA-sched=source", "--enable-misched=false", "--x86-machine-combiner=false")
"""The tiles are written in an order that fits the registers; LLVM's schedulers, and what adds in another order, would
spill them."""

_OF_LANES = ("nvptx", "amdgcn")
"""Triples of GPUs, whose kernels leave -O3 something to do."""


def assembly(text: str, target: Target) -> str:
    """Assembly of IR text, as a person or a test would read it."""
    machine = _target_machine(target)
    return machine.emit_assembly(_optimised(text, machine, target))


def object_code(text: str, target: Target) -> bytes:
    """The object file of IR text, made in this process, which LLVM aborts if its back end fails."""
    machine = _target_machine(target)
    return machine.emit_object(_optimised(text, machine, target))


def is_native(target: Target) -> bool:
    """Whether this machine is of the target's architecture and has every feature it asks LLVM for (and x86-64-v3)."""
    features: dict[str, bool] = dict(llvm.get_host_cpu_features())
    wanted = [word[1:] for word in target.llvm_features.split(",") if word.startswith("+")]
    here, there = (triple.split("-")[0] for triple in (llvm.get_process_triple(), target.triple))
    return here == there and all(features.get(name) for name in [*wanted, *(["avx2"] if here == "x86_64" else [])])


def _optimised(text: str, machine: llvm.TargetMachine, target: Target) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.triple = target.triple
    if not target.triple.startswith("x86_64"):  # whose layout is LLVM's default
        module.data_layout = str(machine.target_data)
    module.verify()
    builder = _pass_builder(machine)
    passes = builder.getModulePassManager() if target.triple.startswith(_OF_LANES) else _few_passes()
    passes.run(module, builder)
    return module


def _few_passes() -> llvm.ModulePassManager:
    """Kernels of CPUs are written as they are to be run: -O3 takes a dozen times as long, for code that is a quarter
    larger and no faster (docs/decisions/011-start.md)."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    return passes


def _pass_builder(machine: llvm.TargetMachine) -> llvm.PassBuilder:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.slp_vectorization = False
    options.loop_vectorization = False
    return llvm.create_pass_builder(machine, options)


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


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a terminal's Ctrl-C, at which LLVM does not look
    _form, _name, _triple, _cpu, _features = sys.argv[1:]
    _target = Target(_name, _triple, _cpu, _features, cpu_flags=(), vector_bytes=0)
    _text = sys.stdin.buffer.read().decode()
    sys.stdout.buffer.write(assembly(_text, _target).encode() if _form == "asm" else object_code(_text, _target))
