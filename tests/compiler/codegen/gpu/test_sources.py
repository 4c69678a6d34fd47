"""Metal, Ascend and Cambricon: sources that nothing here can run as their makers do; they are checked as C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compiler.codegen.gpu.cplusplus import BangDevice, compile_errors
from tests.compiler.codegen.gpu.launching import run_gpu
from tests.compiler.codegen.gpu.steps import layer_step, two_sequences
from tests.compiler.codegen.steps import random_pages, run_reference
from unsay.compiler.codegen.backends import Step, find_backend
from unsay.compiler.codegen.gpu.plan import plan_step
from unsay.isa.formats import DType


def emitted(target: str, dtype: DType = DType.Q4_1) -> dict[str, bytes]:
    """The files of a layer."""
    step = layer_step(dtype, DType.Q8_0)
    return dict(find_backend(target).emitter.emit(Step(step.program, step.spec, 24, 4, 1, 0)).files)


@pytest.mark.parametrize(("target", "name"), [("metal", "kernels.metal"), ("ascend", "step.cpp")])
def test_a_source_is_cplusplus_and_a_wrong_one_is_not(target: str, name: str) -> None:
    source = emitted(target)[name]
    assert compile_errors(source) == ""
    broken = source.replace(b"* 96)", b"* memory)").replace(
        b"aclopCompileAndExecute(kind, ", b"aclopCompileAndExecute("
    )
    assert broken != source and "error" in compile_errors(broken)


def test_bang_c_run_as_cplusplus_equals_the_definition(tmp_path: Path) -> None:
    step, batch = layer_step(DType.Q4_1, DType.Q8_0), two_sequences()
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    device = BangDevice(emitted("cambricon")["kernels.mlu"], tmp_path)
    assert run_gpu(step, batch, pages, plan_step(step.program, step.spec), device) == expected
