"""The LLVM text of GPU kernels, executed on this CPU one group at a time, against the definition, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.compiler.codegen.gpu.launching import CpuDevice, run_gpu
from tests.compiler.codegen.gpu.steps import corner_step, layer_step, six_tokens, two_sequences
from tests.compiler.codegen.steps import Memory, StepBuilder, random_pages, run_reference
from unsay.compiler.codegen.gpu.plan import plan_step
from unsay.isa.formats import DType

FORMATS = [
    (DType.Q4_1, DType.Q8_0, "f16"), (DType.Q8_0, DType.Q4_0, "f16"), (DType.Q4_0, DType.Q4_1, "f16"),
    (DType.F16, DType.BF16, "f32"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "table", "kv_format"), FORMATS)
def test_a_whole_layer_equals_the_definition(dtype: DType, table: DType, kv_format: str) -> None:
    step, batch = layer_step(dtype, table, kv_format), two_sequences()
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    assert not np.array_equal(expected.arena, np.frombuffer(step.arena, np.uint8)), "the step does something"
    plan = plan_step(step.program, step.spec)
    assert run_gpu(step, batch, pages, plan, CpuDevice(list(plan.kernels.values()))) == expected


def gpu_memory(step: StepBuilder, mutate: Callable[[str], str] = str) -> tuple[Memory, Memory]:
    """What the kernels leave, and what the definition does."""
    batch = six_tokens()
    pages = random_pages(step.rng, step.spec, batch)
    plan = plan_step(step.program, step.spec)
    device = CpuDevice(list(plan.kernels.values()), mutate)
    return run_gpu(step, batch, pages, plan, device), run_reference(step, batch, pages)


def test_quantising_equals_the_definition_in_the_corners() -> None:
    made, expected = gpu_memory(corner_step())
    assert made == expected


_ROUNDED_TWICE = """
define internal float @twice(float %a, float %b, float %c) alwaysinline {
  %product = fmul float %a, %b
  %sum = fadd float %product, %c
  ret float %sum
}
"""

MUTANTS: dict[str, Callable[[str], str]] = {
    "fma rounded twice": lambda text: re.sub("^declare.*fma.*$", _ROUNDED_TWICE, text, flags=re.M).replace(
        "@llvm.fma.f32(", "@twice("
    ),
    "ties away from zero": lambda text: text.replace("@llvm.roundeven.f32", "@llvm.round.f32"),
    "high plane halved": lambda text: re.sub(r"(shl i32 %v\d+), 7$", r"\1, 6", text, flags=re.M),
    "wide at equality": lambda text: text.replace("fcmp olt", "fcmp ole"),
    "one block fewer": lambda text: re.sub(r"(icmp slt i32 %v\d+), 2$", r"\1, 1", text, flags=re.M),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_is_noticed(name: str) -> None:
    made, expected = gpu_memory(corner_step(), MUTANTS[name])
    assert made != expected
