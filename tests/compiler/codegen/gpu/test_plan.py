"""A program as launches: what is shared, what is said to whoever runs them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.codegen.gpu.steps import layer_step
from tests.compiler.codegen.steps import StepBuilder, tiny_spec
from tests.images import plain_image
from unsay.compiler.codegen.gpu.plan import plan_step
from unsay.errors import ProgramError, UnsupportedError
from unsay.isa.formats import DType
from unsay.isa.opcodes import Channel


def a_step() -> StepBuilder:
    step = StepBuilder(np.random.default_rng(0))
    step.activation(1, DType.F32, 96)
    step.vector(2, 96)
    return step


def refused(step: StepBuilder, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plan_step(step.program, step.spec)


def test_layers_share_kernels_and_differ_in_places(tiny_paths: dict[str, Path]) -> None:
    image = plain_image(tiny_paths["llama-q4_1"])
    plan = plan_step(image.program, image.manifest.spec)
    attends = [launch for launch in plan.launches if launch.kernel.startswith("attention")]
    assert len(attends) == 2 and len({launch.kernel for launch in attends}) == 1
    first, second = ({place.region: place.offset for place in launch.places}["kv_pool"] for launch in attends)
    layout = image.manifest.spec.kv_layout
    assert (first, second) == (layout.key_offset(0, 0), layout.key_offset(1, 0))
    assert plan.logits is not None and plan.logits.region == "logits"


def test_the_launches_are_told_with_the_kernels() -> None:
    step = layer_step(DType.Q4_1, DType.Q8_0)
    plan = plan_step(step.program, step.spec)
    told = json.loads(plan.to_json())
    assert {launch["kernel"] for launch in told["launches"]} == plan.kernels.keys()
    for launch in told["launches"]:
        assert len(launch["buffers"]) == len(plan.kernels[launch["kernel"]].buffers)


def test_pages_of_int8_are_refused() -> None:
    step = layer_step(DType.Q4_1, DType.Q8_0, "int8")
    refused(step, UnsupportedError, r"keep keys and values as f16 or f32: compile with --kv f16")


def test_layer_norm_is_refused_by_name() -> None:
    step = a_step()
    step.add("NORM", 1, 1, 2, flags=("LAYER",), eps=1e-5)
    refused(step, UnsupportedError, r"instruction 2 \(NORM\): layer norm has no GPU kernel")


def test_a_channel_that_is_not_tensor_work_is_refused() -> None:
    step = a_step()
    step.add("STREAM", 1, 2, channel=Channel.SAMPLE)
    refused(step, UnsupportedError, r"\(STREAM\): channel 2 is not tensor work")


def test_an_instruction_without_a_kernel_is_refused() -> None:
    step = a_step()
    step.add("SENSE", 1, peripheral=0)
    refused(step, UnsupportedError, r"instruction 2 \(SENSE\): no GPU kernel does this")


@pytest.mark.parametrize(("head_dim", "legal"), [(256, True), (272, False)])
def test_heads_have_a_lane_for_each_element(head_dim: int, legal: bool) -> None:
    step = StepBuilder(np.random.default_rng(0), tiny_spec(num_heads=1, num_kv_heads=1, head_dim=head_dim))
    step.activation(1, DType.F32, 3 * head_dim)
    step.activation(2, DType.F32, head_dim)
    heads = {"num_heads": 1, "num_kv_heads": 1, "head_dim": head_dim}
    step.add("ATTN", 2, 1, 1, 1, layer=0, scale=1.0, q_column=0, k_column=head_dim, v_column=2 * head_dim, **heads)
    if legal:
        assert len(plan_step(step.program, step.spec).launches) == 3
    else:
        refused(step, UnsupportedError, r"attention heads of 272: .* 256 at most")


def test_weights_and_activations_that_do_not_fit_are_refused() -> None:
    step = a_step()
    step.matrix(3, DType.Q8_0, 64, 96)
    step.add("MATMUL", 1, 1, 3)
    refused(step, ProgramError, r"\(MATMUL\): weights Q8_0 \(64, 96\) do not fit x F32 \(24, 96\), y F32")


@pytest.mark.parametrize(("num_rows", "legal"), [(2**31 // 64, True), (2**31 // 64 + 16, False)])
def test_words_of_a_tensor_are_counted_in_an_i32(num_rows: int, legal: bool) -> None:
    step = a_step()
    sizes = {"dtype": int(DType.F32), "rank": 2, "offset": 0, "dim1": 64, "dim2": 1, "dim3": 1}
    step.add("TENSOR", 3, dim0=num_rows, flags=("REGION1",), **sizes)
    step.activation(4, DType.F32, 64)
    step.add("TENSOR", 5, flags=("DIM_TOKENS",), **sizes | {"dim0": 1, "dim1": num_rows})
    step.add("MATMUL", 5, 4, 3)
    if legal:
        plan_step(step.program, step.spec)
    else:
        refused(step, UnsupportedError, r"\(MATMUL\): a tensor of 8589\d+ bytes: GPU kernels index 8589934592 at most")


@pytest.mark.parametrize("name", ["ADD", "SILU_MUL"])
def test_rows_of_different_lengths_are_refused(name: str) -> None:
    step = a_step()
    step.activation(3, DType.F32, 64)
    step.add(name, 1, 1, 3)
    refused(step, ProgramError, r"shapes differ: \[\(24, 96\), \(24, 96\), \(24, 64\)\]")


def test_a_register_that_names_nothing_is_refused() -> None:
    step = a_step()
    step.add("ADD", 1, 1, 7)
    refused(step, ProgramError, r"\(ADD\): R7 names no tensor")
