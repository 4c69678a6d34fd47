"""The LLVM text of GPU kernels, executed on this CPU one group at a time, against the definition, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.codegen.gpu.launching import CpuDevice, run_gpu
from tests.compiler.codegen.gpu.steps import layer_step, two_sequences
from tests.compiler.codegen.steps import random_pages, run_reference
from unsay.compiler.codegen.gpu.plan import plan_step
from unsay.isa.formats import DType

FORMATS = [(DType.Q4_1, DType.Q8_0), (DType.Q8_0, DType.Q4_0), (DType.Q4_0, DType.Q4_1), (DType.F16, DType.BF16)]


@pytest.mark.parametrize(("dtype", "table"), FORMATS)
def test_a_whole_layer_equals_the_definition(dtype: DType, table: DType) -> None:
    step, batch = layer_step(dtype, table), two_sequences()
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    assert not np.array_equal(expected.arena, np.frombuffer(step.arena, np.uint8)), "the step does something"
    plan = plan_step(step.program, step.spec)
    assert run_gpu(step, batch, pages, plan, CpuDevice(list(plan.kernels.values()))) == expected
