"""WGSL kernels run on lavapipe: GEMV, attention and all else of a step, bit for bit what the definition gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.codegen.gpu.launching import run_gpu, run_model
from tests.compiler.codegen.gpu.steps import corner_step, layer_step, six_tokens, two_sequences
from tests.compiler.codegen.gpu.vulkan import VulkanDevice
from tests.compiler.codegen.steps import StepBuilder, random_pages, run_reference
from tests.images import make_batch, plain_image, run
from unsay.compiler.codegen.gpu.lanes import (
    F32,
    I32,
    Expr,
    Kernel,
    as_i32,
    constant,
    fma,
    half,
    half_bits,
    sqrt,
    to_f32,
)
from unsay.compiler.codegen.gpu.plan import plan_step
from unsay.core import Batch
from unsay.isa.formats import DType
from unsay.runtime import arithmetic
from unsay.runtime.reference import ReferenceExecutor


@pytest.mark.parametrize(
    ("step", "batch"),
    [(layer_step(DType.Q4_1, DType.Q8_0), two_sequences()), (corner_step(), six_tokens())],
    ids=["a whole layer", "corners of quantising"],
)
def test_a_step_equals_the_definition(step: StepBuilder, batch: Batch) -> None:
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_reference(step, batch, pages)
    assert not np.array_equal(expected.arena, np.frombuffer(step.arena, np.uint8)), "the step does something"
    assert run_gpu(step, batch, pages, plan_step(step.program, step.spec), VulkanDevice()) == expected


def test_a_tiny_model_decodes_to_the_bits_of_the_reference_executor(tiny_paths: dict[str, Path]) -> None:
    image = plain_image(tiny_paths["llama-q8_0-d64"])
    plan, device = plan_step(image.program, image.manifest.spec), VulkanDevice()
    pages = [np.zeros((4, image.manifest.spec.kv_layout.page_bytes), np.uint8) for _ in range(2)]
    executor = ReferenceExecutor(image, pages[0])
    for batch in (
        make_batch([(0, [3, 1, 4, 1, 5]), (0, [9, 2])], [[0, 1], [2, 3]], [4, 6]),
        make_batch([(5, [6]), (2, [5])], [[0, 1], [2, 3]], [0, 1]),
    ):
        expected = run(executor, batch)
        assert expected is not None
        got = run_model(image, plan, batch, pages[1], device)
        np.testing.assert_array_equal(got.copy().view(np.int32), expected.view(np.int32))
        np.testing.assert_array_equal(*pages)


def test_arithmetic_in_integers_rounds_once() -> None:
    """fma, division, square root and conversions of numbers of every size, denormals and cancellation among them."""
    count, rng = 65536, np.random.default_rng(1)
    a, b, c = (rng.integers(0, 2**32, count, np.uint32).view(np.float32) for _ in range(3))
    with np.errstate(all="ignore"):
        c[::2] = -(a * b)[::2]
    a[:1024], b[:1024], c[:1024] = (rng.integers(-4, 5, 1024).astype(np.float32) for _ in range(3))
    integers = rng.integers(-(2**31), 2**31, count).astype(np.int32)
    kernel, out = _arithmetic_kernel(count), np.zeros((6, count), np.int32)
    VulkanDevice().run(kernel, (count // 64, 1), [x.view(np.uint8).reshape(-1) for x in (a, b, c, integers, out)])
    bits = np.arange(count, dtype=np.uint16)
    with np.errstate(all="ignore"):
        expected = [arithmetic.fma(a, b, c), a / b, np.sqrt(a), integers.astype(np.float32),
                    bits.view(np.float16).astype(np.float32)]  # fmt: skip
        halves = a.astype(np.float16).view(np.uint16).astype(np.int32)
    for got, want in zip(out.view(np.float32), expected, strict=False):
        np.testing.assert_array_equal(got[np.isfinite(want)], want[np.isfinite(want)])
    np.testing.assert_array_equal(out[5][np.isfinite(a)], halves[np.isfinite(a)])


def _arithmetic_kernel(count: int) -> Kernel:
    k = Kernel("arithmetic", 64, "each operation of a, b, c, i to a row of out")
    a, b, c = (k.buffer(name, F32) for name in "abc")
    i, out = k.buffer("i", I32), k.buffer("out", I32, writes=True)
    n = k.let("n", k.group * 64 + k.lane)
    results: list[Expr] = [fma(a[n], b[n], c[n]), a[n] / b[n], sqrt(a[n]), to_f32(i[n]), half(n, 0)]
    for row, value in enumerate(results):
        out[constant(I32, row * count) + n] = as_i32(value)
    out[constant(I32, 5 * count) + n] = half_bits(a[n])
    return k
