"""LLVM, through llvmlite: IR text in, linked machine code out. The only module that imports llvmlite.

Floating point stays as written: no fast-math flag is ever emitted, denormals are IEEE, nothing is contracted;
"no-builtins" keeps LLVM from turning a loop into a call of memset or memcpy, which nothing here could resolve.

An error in one of LLVM's back ends ends the process, so code for a target that is not this machine's is made in a
process of its own: `python -m unsay.compiler.codegen.llvm FORM NAME TRIPLE CPU FEATURES`, IR text in, object file or
assembly out.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Literal, TypeAlias

import llvmlite.binding as llvm

from unsay.compiler.codegen.elf import link
from unsay.compiler.codegen.wasm import link_wasm
from unsay.errors import TargetError
from unsay.isa.targets import Target

Form: TypeAlias = Literal["object", "asm"]

ATTRIBUTES = (
    'attributes #0 = { nounwind "no-builtins" "denormal-fp-math"="ieee,ieee" "no-trapping-math"="true" '
    '"min-legal-vector-width"="512" }'
)
"""What `#0` stands for in the emitted text: part of every module."""


_KEEP_ORDER = ("--pre-RA-sched=source", "--enable-misched=false")
"""The tiles are written in an order that fits the registers; LLVM's schedulers would spill them."""


def compile_module(text: str, target: Target) -> tuple[bytes, dict[str, int]]:
    """(position-independent code, entry offsets) of IR text; LLVM's own words are raised if it does not parse.

    For WebAssembly: a module, and the indices of its functions.

    Raises TargetError if LLVM fails for a target other than this machine's.
    """
    linker = link_wasm if target.triple.startswith("wasm") else link
    return linker(translate(text, target, "object"))


def translate(text: str, target: Target, form: Form) -> bytes:
    """An object file, or assembly in UTF-8, of IR text; in a process of its own if the target is not this machine's.

    Raises TargetError if LLVM fails there.
    """
    if _is_native(target):
        return _translate_here(text, target, form)
    command = [sys.executable, "-m", __name__, form, target.name, target.triple, target.llvm_cpu, target.llvm_features]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode:
        raise TargetError(f"LLVM cannot make {target.name} code: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def assembly(text: str, target: Target) -> str:
    """Assembly of IR text, as a person or a test would read it."""
    machine = _target_machine(target)
    return machine.emit_assembly(_optimised(text, machine, target))


def object_code(text: str, target: Target) -> bytes:
    """The object file of IR text, made in this process, which LLVM aborts if its back end fails."""
    machine = _target_machine(target)
    return machine.emit_object(_optimised(text, machine, target))


def _translate_here(text: str, target: Target, form: str) -> bytes:
    return assembly(text, target).encode() if form == "asm" else object_code(text, target)


def _is_native(target: Target) -> bool:
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


if __name__ == "__main__":
    _form, _name, _triple, _cpu, _features = sys.argv[1:]
    _target = Target(_name, _triple, _cpu, _features, cpu_flags=(), vector_bytes=0)
    sys.stdout.buffer.write(_translate_here(sys.stdin.buffer.read().decode(), _target, _form))
