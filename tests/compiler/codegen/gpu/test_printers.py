"""What the printers make of one small kernel: text that reads as if written by hand, and the language's rules."""

from __future__ import annotations

import math

import numpy as np
import pytest

from unsay.compiler.codegen.gpu.bang_text import bang
from unsay.compiler.codegen.gpu.c_text import msl, wgsl
from unsay.compiler.codegen.gpu.lanes import F32, I32, Kernel, constant, fma
from unsay.compiler.codegen.gpu.llvm_text import NVPTX, amdgcn, llvm_module


def reversed_sum() -> Kernel:
    """y[i] = 0.1 x[i] + x[63 - i] of each row of 64, by way of shared memory."""
    k = Kernel("reversed_sum", lanes=64, doc="y[i] = 0.1 x[i] + x[63 - i]")
    x, y = k.buffer("x", F32), k.buffer("y", F32, writes=True)
    row = k.shared("row", F32, 64)
    value = k.let("value", x[k.row * 64 + k.lane])
    row[k.lane] = value
    k.barrier()
    with k.when(k.lane < 63):
        y[k.row * 64 + k.lane] = fma(value, 0.1, row[constant(I32, 63) - k.lane])
    return k


def body(source: str) -> list[str]:
    """The lines between the head of the kernel and its end."""
    lines = source.splitlines()
    start = next(place for place, line in enumerate(lines) if "reversed_sum(" in line)
    return [line for line in lines[start + 1 :] if line]


def test_wgsl() -> None:
    assert body(wgsl(reversed_sum())) == [
        "    @builtin(workgroup_id) group_index: vec3<u32>) {",
        "  let lane: i32 = i32(lane_index);",
        "  let group: i32 = i32(group_index.x);",
        "  let row: i32 = i32(group_index.y);",
        "  let value: f32 = x[(row * 64) + lane];",
        "  row_2[lane] = value;",
        "  workgroupBarrier();",
        "  if (lane < 63) {",
        "    y[(row * 64) + lane] = fma_exact(value, 0x1.99999ap-4f, row_2[63 - lane]);",
        "  }",
        "}",
    ]


def test_wgsl_with_the_fma_of_the_device() -> None:
    assert "= fma(value, 0x1.99999ap-4f, row_2[63 - lane]);" in wgsl(reversed_sum(), native_fma=True)


def test_msl() -> None:
    assert body(msl([reversed_sum()])) == [
        "  threadgroup float row_2[64];",
        "  const int lane = int(lane_index), group = int(group_index.x), row = int(group_index.y);",
        "  const float value = x[(row * 64) + lane];",
        "  row_2[lane] = value;",
        "  threadgroup_barrier(mem_flags::mem_threadgroup);",
        "  if (lane < 63) {",
        "    y[(row * 64) + lane] = fma(value, 0x1.99999ap-4f, row_2[63 - lane]);",
        "  }",
        "}",
    ]


def test_bang_c_keeps_for_all_lanes_what_crosses_a_barrier() -> None:
    assert body(bang([reversed_sum()])) == [
        "  __nram__ float row_2[64];",
        "  __nram__ float value[64];",
        "  for (int unit = taskId; unit < groups * rows; unit += taskDim) {",
        "    const int group = unit % groups, row = unit / groups;",
        "    for (int lane = 0; lane < 64; lane += 1) {",
        "      value[lane] = x[(row * 64) + lane];",
        "      row_2[lane] = value[lane];",
        "    }",
        "    for (int lane = 0; lane < 64; lane += 1) {",
        "      if (lane < 63) {",
        "        y[(row * 64) + lane] = fmaf(value[lane], 0x1.99999ap-4f, row_2[63 - lane]);",
        "      }",
        "    }",
        "  }",
        "}",
    ]


def test_llvm_ir_declares_what_it_uses_and_no_more() -> None:
    nvptx, amd = (llvm_module([reversed_sum()], flavour) for flavour in (NVPTX, amdgcn("gfx942")))
    assert "define ptx_kernel void @reversed_sum(ptr addrspace(1) %x" in nvptx
    assert "define amdgpu_kernel void @reversed_sum(ptr addrspace(1) %x" in amd
    for text in (nvptx, amd):
        assert "@reversed_sum.row_2 = internal addrspace(3) global [64 x float] undef" in text
        assert text.count("declare ") == len({line for line in text.splitlines() if line.startswith("declare ")})
        assert "sqrt" not in text and "@llvm.fma.f32(" in text


def test_lanes_meet_only_where_all_arrive() -> None:
    k = Kernel("wrong", lanes=64, doc="")
    with pytest.raises(AssertionError, match="rule 1"), k.when(k.lane < 3):
        k.barrier()


def test_types_are_not_mixed() -> None:
    k = Kernel("wrong", lanes=64, doc="")
    x = k.buffer("x", F32)
    with pytest.raises(AssertionError):
        x[k.lane] + k.lane
    with pytest.raises(AssertionError):
        x[k.lane] = x[k.lane]


@pytest.mark.parametrize("value", [0.1, -87.33, 2.0**-100, 1e-30, 16256.0, math.pi])
def test_constants_are_written_exactly(value: float) -> None:
    k = Kernel("constants", lanes=64, doc="")
    y = k.buffer("y", F32, writes=True)
    y[k.lane] = constant(F32, value)
    (line,) = [line for line in wgsl(k).splitlines() if "y[lane] = " in line]
    assert float.fromhex(line.split(" = ")[1].strip("();f")) == float(np.float32(value))
