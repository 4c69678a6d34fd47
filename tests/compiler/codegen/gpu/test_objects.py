"""PTX and AMDGCN: what LLVM makes of the kernels, and what the makers' tools say of it where they are installed."""

from __future__ import annotations

import re
import struct

import pytest

from unsay.compiler.codegen.gpu.attention import Attention, attention
from unsay.compiler.codegen.gpu.emitters import AMD_CHIPS, amdgcn_files, ptx_files
from unsay.compiler.codegen.gpu.lanes import Kernel
from unsay.compiler.codegen.gpu.products import Gemv, gemv
from unsay.compiler.codegen.gpu.rows import rms_norm
from unsay.compiler.codegen.gpu.tools import LLD, PTXAS, assemble_ptx, find_tool, link_amdgcn
from unsay.errors import TargetError
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout

ELF, AMDGPU, CUDA = b"\x7fELF", 224, 190


def kernels() -> list[Kernel]:
    """GEMV, attention and RMS norm of a small model."""
    return [
        gemv(Gemv(DType.Q8_0, 96, 64, DType.Q8W, capacity=8)),
        gemv(Gemv(DType.Q4_1, 96, 64, DType.Q8A, capacity=8, bias=True)),
        attention(Attention(KvLayout(2, 3, 64), num_heads=9, scale=0.125, q_width=576)),
        rms_norm(576, 1e-5),
    ]


def machine(elf: bytes) -> int:
    """e_machine of an ELF file."""
    assert elf[:4] == ELF
    return struct.unpack_from("<H", elf, 18)[0]


def test_ptx_has_an_entry_for_each_kernel_and_rounds_as_the_contract_says() -> None:
    ptx = ptx_files(kernels())["kernels.ptx"]
    text = ptx.decode()
    assert re.findall(r"\.entry (\w+)\(", text) == [kernel.name for kernel in kernels()]
    assert {"dp4a.s32.s32", "fma.rn.f32", "div.rn.f32", "sqrt.rn.f32", "bar.sync", "cvt.rni.f32.f32"} <= set(
        re.findall(r"[a-z]\w*(?:\.\w+)+", text)
    )
    assert not re.search(r"\.approx|\.ftz|\.full", text), "nothing is approximate, and denormals are kept"
    if find_tool(PTXAS):
        assert machine(assemble_ptx(ptx)) == CUDA
    else:
        with pytest.raises(TargetError, match="ptxas is not installed"):
            assemble_ptx(ptx)


@pytest.mark.parametrize("chip", AMD_CHIPS)
def test_amdgcn_is_an_object_with_a_descriptor_for_each_kernel(chip: str) -> None:
    code = amdgcn_files(kernels(), chip)["kernels.o"]
    assert machine(code) == AMDGPU
    for kernel in kernels():
        assert f"\0{kernel.name}\0".encode() in code and f"\0{kernel.name}.kd\0".encode() in code
    if find_tool(LLD):
        assert machine(link_amdgcn(code)) == AMDGPU
    else:
        with pytest.raises(TargetError, match=r"ld\.lld is not installed"):
            link_amdgcn(code)


def test_a_tool_that_refuses_is_quoted() -> None:
    if find_tool(PTXAS):
        with pytest.raises(TargetError, match=r"ptxas: .*\.version"):
            assemble_ptx(b"nonsense")
    else:
        with pytest.raises(TargetError, match="not installed"):
            assemble_ptx(b"nonsense")
