"""IR text to machine code, by LLVM in a process of its own: `python -m unsay.compiler.codegen.llvm`.

An error in one of LLVM's back ends ends the process, and what LLVM took of memory goes with it. Meanwhile weights are
packed here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Literal, TypeAlias

from unsay.compiler.beside import ended_by
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


def machine_code(write: Callable[[], str], target: Target) -> tuple[bytes, dict[str, int]]:
    """(position-independent code, entry offsets) of the IR text that `write` makes while LLVM's process starts; for
    WebAssembly (module, indices of its functions).

    Raises TargetError if LLVM fails, and what `write` raises.
    """
    linker = link_wasm if target.triple.startswith("wasm") else link
    return linker(_translated(write, target, "object"))


def compile_module(text: str, target: Target) -> tuple[bytes, dict[str, int]]:
    """The same, for small modules; in this process, with LLVM's own errors, if the target is this machine's own."""
    from unsay.compiler.codegen.llvm import is_native, object_code

    return link(object_code(text, target)) if is_native(target) else machine_code(lambda: text, target)


def translate(text: str, target: Target, form: Form) -> bytes:
    """An object file, or assembly in UTF-8, of IR text. Raises TargetError with LLVM's words if it fails."""
    return _translated(lambda: text, target, form)


def _translated(write: Callable[[], str], target: Target, form: Form) -> bytes:
    module = "unsay.compiler.codegen.llvm"
    command = [sys.executable, "-m", module, form, target.name, target.triple, target.llvm_cpu, target.llvm_features]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as llvm, ended_by(llvm.kill):
        try:
            made, words = llvm.communicate(write().encode())
        except BaseException:
            llvm.kill()
            raise
    if llvm.returncode:
        said = words.decode(errors="replace").strip() or (
            f"its process ended with {llvm.returncode} and said nothing; "
            "-9 is mostly want of memory, of which it takes 160 MB"
        )
        raise TargetError(f"LLVM cannot make {target.name} code: {said}")
    return made
