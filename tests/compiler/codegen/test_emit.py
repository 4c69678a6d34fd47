"""The step as a whole: targets, refusals, threads and the interrupt word."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.compiler.codegen.steps import (
    CAPACITY,
    UNITS,
    StepBuilder,
    make_batch,
    random_pages,
    run_native,
    run_reference,
    tiny_spec,
)
from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import emit, step_text
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.translate import translate
from unsay.errors import ProgramError, TargetError, UnsupportedError
from unsay.isa.formats import DType
from unsay.isa.opcodes import NO_OFFSET, Channel
from unsay.isa.targets import TARGETS, Target


def in_limits(step: StepBuilder) -> Step:
    """What is emitted of a hand-made step."""
    return Step(step.program, step.spec, CAPACITY, max_rows=4, max_threads=4, scratch_offset=1 << 20)


def layer(seed: int = 0) -> StepBuilder:
    """NORM, QKV, ATTN, MATMUL, FFN: most of what a model does."""
    step = StepBuilder(np.random.default_rng(seed))
    step.activation(1, DType.F32, 96)
    step.vector(2, 96)
    step.activation(3, DType.Q8W, 96)
    step.matrix(4, DType.Q4_1, 256, 96)
    step.table(5, 32)
    step.activation(6, DType.F32, 256)
    step.activation(7, DType.Q8A, 128)
    step.matrix(8, DType.Q8_0, 96, 128)
    step.matrix(9, DType.Q4_0, 128, 96)
    step.matrix(10, DType.Q4_1, 96, 64)
    hidden = step.activation(11, DType.Q8A, 64)
    step.add("NORM", 3, 1, 2, eps=1e-5)
    step.add("QKV", 6, 3, 4, 5, num_heads=4, num_kv_heads=2, head_dim=32, bias=NO_OFFSET)
    step.add(
        "ATTN", 7, 6, 6, 6, layer=0, num_heads=4, num_kv_heads=2, head_dim=32, scale=0.17677669, q_column=0,
        k_column=128, v_column=192,
    )  # fmt: skip
    step.add("MATMUL", 1, 7, 8, flags=("ACCUMULATE",))
    step.add("NORM", 3, 1, 2, eps=1e-5)
    step.add("FFN", 1, 3, 9, 10, ffn_size=64, hidden=hidden, hidden_dtype=int(DType.Q8A))
    return step


def product(x_dtype: DType = DType.Q8A) -> StepBuilder:
    """QUANT and MATMUL: little to compile, with the one thing in it that targets do differently."""
    step = StepBuilder(np.random.default_rng(0))
    step.activation(1, DType.F32, 64)
    step.activation(2, x_dtype, 64)
    step.matrix(3, DType.Q4_1, 32, 64)
    step.activation(4, DType.F32, 32)
    step.add("QUANT", 2, 1)
    step.add("MATMUL", 4, 2, 3)
    return step


OWN_INSTRUCTION = {
    "amx-int8": r"tdpbssd\s.*%tmm",
    "avx512-vnni": r"vpdpbusd\s.*%zmm",
    "avx-vnni": r"\{vex\}\s+vpdpbusd\s.*%ymm",
    "avx2": r"vpmaddubsw\s.*%ymm",
    "aarch64-i8mm": r"smmla\s+v\d+\.4s, v\d+\.16b",
    "aarch64-dotprod": r"sdot\s+v\d+\.4s, v\d+\.16b",
    "wasm32-simd128": r"i32x4\.dot_i16x8_s",
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_each_target_uses_its_own_instruction_and_calls_nothing_outside(target: Target) -> None:
    step = product(DType.Q16P if target.has_tiles else DType.Q8A)
    text = translate(step_text(in_limits(step), dot_unit(target)), target, "asm").decode()
    used = {name for name, instruction in OWN_INSTRUCTION.items() if re.search(instruction, text)}
    for_one_token = {"aarch64-dotprod"} if target.name == "aarch64-i8mm" else set[str]()
    assert used == {target.name} | for_one_token
    assert ("%zmm" in text) == (target.vector_bytes == 64)
    called = set(re.findall(r"^\t(?:callq|call|bl)\t([\w.]+)", text, re.MULTILINE))
    assert called and called <= set(re.findall(r"^([\w.]+):", text, re.MULTILINE))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_code_of_every_target_links_with_its_entries(target: Target) -> None:
    step = product(DType.Q16P if target.has_tiles else DType.Q8A)
    code = emit(in_limits(step), target.name)
    assert set(code.entry) == {"step", "run", "worker", "close", "survey", "race"}
    assert all(0 <= offset < len(code.blob) for offset in code.entry.values())


@pytest.mark.parametrize("unit", UNITS)
def test_threads_chunks_and_units_give_the_same_bytes(unit: str) -> None:
    step = layer()
    batch = make_batch(list(range(300, 300 + CAPACITY)))
    pages = random_pages(step.rng, step.spec, batch)
    expected = run_native(step, batch, pages)
    for num_threads in (1, 2, 3, 4):
        assert run_native(step, batch, pages, UNITS[unit], num_threads) == expected


def test_chunks_of_a_few_tokens_are_the_same_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are taken from others in the last chunk alone, in those before each thread keeps to its share."""
    monkeypatch.setattr("unsay.compiler.codegen.kernels.matmul.CHUNK_BYTES", 8 * 96)
    step = replace(layer(), spec=tiny_spec(name="small chunks"))
    batch = make_batch(list(range(300, 300 + CAPACITY)))
    pages = random_pages(step.rng, step.spec, batch)
    for num_threads in (1, 2, 3, 4):
        made, expected = run_native(step, batch, pages, num_threads=num_threads), run_reference(step, batch, pages)
        assert made is not None and made.tensor(0, 96).tobytes() == expected.tensor(0, 96).tobytes()


def barriers(step: StepBuilder) -> list[str]:
    """The kernels and barriers of a step in order; "many?" where only a step of many rows has the next one."""
    text = step_text(in_limits(step), UNITS["avx2"])
    body = text[text.index("define i32 @step(") :]
    body = body[: body.index("\n}")]
    found = re.findall(r"call void @(\w+?)_|call i1 (@barrier)|(icmp sgt) i64 %\w+, 2$", body, re.MULTILINE)
    return [kernel or ("barrier" if meets else "many?") for kernel, meets, _ in found]


def test_a_layer_has_nine_barriers_and_five_in_a_step_of_one_or_two_tokens() -> None:
    called = barriers(layer())
    assert called.count("barrier") == 9
    followed = {kernel: called[at + 1 : at + 3] for at, kernel in enumerate(called)}
    assert [kernel for kernel, after in followed.items() if after == ["many?", "barrier"]] == ["rms", "append", "merge"]
    assert called.count("many?") == 4


def test_a_norm_whose_input_is_written_next_has_its_barrier_in_every_step() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.activation(1, DType.F32, 64)
    step.vector(2, 64)
    step.activation(3, DType.Q8W, 64)
    step.matrix(4, DType.Q4_1, 64, 64)
    step.add("NORM", 3, 1, 2, eps=1e-5)
    step.add("MATMUL", 1, 3, 4)
    assert barriers(step) == ["rms", "barrier", "matmul", "barrier"]


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("num_tokens", [1, 2, 3])
def test_a_norm_is_the_same_with_and_without_its_barrier(num_tokens: int, num_threads: int) -> None:
    step = layer()
    batch = make_batch(list(range(num_tokens)))
    pages = random_pages(step.rng, step.spec, batch)
    assert run_native(step, batch, pages, num_threads=num_threads) == run_native(step, batch, pages)


@pytest.mark.parametrize("num_threads", [1, 2, 4])
def test_an_interrupt_stops_every_thread(num_threads: int) -> None:
    step = layer()
    batch = make_batch(list(range(CAPACITY)))
    pages = random_pages(step.rng, step.spec, batch)
    assert run_native(step, batch, pages, num_threads=num_threads, is_interrupted=True) is None
    assert run_native(step, batch, pages, num_threads=num_threads) is not None


def refused(step: StepBuilder, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        emit(in_limits(step), "avx2")


def test_what_is_not_tensor_work_is_refused_by_name() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.add("FORK", 1, label=0)
    refused(step, ProgramError, r"instruction 0 \(FORK\)")


def test_a_sparse_tensor_is_refused_by_name() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.add("TENSOR", 1, flags=("SPARSE",), dtype=0, rank=1, dim0=16, dim1=1, dim2=1, dim3=1, offset=0)
    refused(step, UnsupportedError, "sparse")


def test_a_tensor_without_a_place_is_refused() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.add("TENSOR", 1, dtype=0, rank=1, dim0=16, dim1=1, dim2=1, dim3=1, offset=NO_OFFSET)
    refused(step, ProgramError, "offset")


def test_an_input_of_the_wrong_type_is_refused_naming_both() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.activation(1, DType.F32, 32)
    step.matrix(2, DType.Q4_1, 16, 32)
    step.activation(3, DType.F32, 16)
    step.add("MATMUL", 3, 1, 2)
    refused(step, ProgramError, "needs x Q8A or Q8W")


@pytest.mark.parametrize("dtype", [DType.I32, DType.F64, DType.BOOL], ids=lambda dtype: dtype.name)
def test_a_weight_of_a_type_no_weight_has_is_refused(dtype: DType) -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.activation(1, DType.F32, 32)
    step.matrix(2, DType.F32, 16, 32)
    given = step.instructions[-1]
    step.instructions[-1] = replace(given, payload=(int(dtype), *given.payload[1:]))
    step.activation(3, DType.F32, 16)
    step.add("MATMUL", 3, 1, 2)
    refused(step, ProgramError, f"a weight of {dtype.name}")


def test_an_output_of_a_type_the_instruction_does_not_make_is_refused() -> None:
    step = StepBuilder(np.random.default_rng(0))
    for register, dtype in enumerate((DType.F32, DType.Q8A, DType.Q8W), start=1):
        step.activation(register, dtype, 64)
    step.matrix(5, DType.F16, 16, 64)
    for name, registers, made in (
        ("QUANT", (1, 1), "Q8A or Q8W"),
        ("SILU_MUL", (5, 1, 1), "F32 or Q8A or Q8W"),
        ("ADD", (2, 1, 1), "F32"),
    ):
        wrong = replace(step, instructions=list(step.instructions))
        wrong.add(name, *registers)
        refused(wrong, ProgramError, f"it must be {made}")
    step.matrix(4, DType.Q4_1, 128, 64)
    step.add("FFN", 1, 3, 4, 4, ffn_size=64, hidden=0, hidden_dtype=int(DType.F16))
    refused(step, ProgramError, "hidden is F16")


def test_rows_that_are_not_whole_vectors_are_refused() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.activation(1, DType.F32, 20)
    step.activation(2, DType.F32, 20)
    step.add("ADD", 2, 1, 1)
    refused(step, UnsupportedError, "20")


def test_head_sizes_that_are_not_whole_vectors_are_refused() -> None:
    step = StepBuilder(np.random.default_rng(0), tiny_spec(head_dim=24))
    refused(step, UnsupportedError, "24")


def test_an_unknown_target_is_refused_naming_the_known() -> None:
    step = StepBuilder(np.random.default_rng(0))
    with pytest.raises(TargetError, match="avx512-vnni, avx-vnni, avx2"):
        emit(in_limits(step), "sse2")


def test_logits_of_a_register_without_tensor_are_refused() -> None:
    step = StepBuilder(np.random.default_rng(0))
    step.add("STREAM", 0xFF, 3, channel=Channel.LOGITS)
    refused(step, ProgramError, "R3")
