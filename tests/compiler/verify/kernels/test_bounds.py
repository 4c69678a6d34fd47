"""Every access of a compiled step is inside the memory its instruction names; edits of the text are caught."""

import re

import pytest

from tests.compiler.shapes import TINY, tensor_types
from unsay.compiler.codegen.backends import Step
from unsay.compiler.codegen.emit import step_text
from unsay.compiler.codegen.kernels.dot import DotUnit, dot_unit
from unsay.compiler.lower import Lowered, lower
from unsay.compiler.lower.fast import fast_program
from unsay.compiler.models import build_graph
from unsay.compiler.passes import run_passes
from unsay.compiler.verify.kernels.bounds import prove_step
from unsay.compiler.verify.obligation import Result, Status, attempt
from unsay.image import ModelSpec
from unsay.isa.formats import DType
from unsay.isa.targets import find_target

SPEC = TINY._replace(num_layers=1, num_heads=2, num_kv_heads=1, context_length=600)
UNIT, AMX = dot_unit(find_target("avx2")), dot_unit(find_target("amx-int8"))


@pytest.fixture(scope="module")
def lowered() -> Lowered:
    return lower(run_passes(build_graph(SPEC, tensor_types(SPEC), 48, 8)), SPEC, 48, 8)


@pytest.fixture(scope="module")
def text(lowered: Lowered) -> str:
    return step_text(_step(lowered), UNIT)


def _lowered(spec: ModelSpec) -> Lowered:
    return lower(run_passes(build_graph(spec, tensor_types(spec), 48, 8)), spec, 48, 8)


def _step(lowered: Lowered, spec: ModelSpec = SPEC) -> Step:
    return Step(lowered.program, spec, max_tokens=48, max_rows=8, max_threads=4, scratch_offset=lowered.arena_bytes)


def _proved(lowered: Lowered, text: str | None = None, only: str = "", unit: DotUnit = UNIT) -> Result:
    return attempt(lambda: prove_step(_step(lowered), unit, text, only))


def test_every_access_of_a_step_is_inside(lowered: Lowered):
    result = _proved(lowered)
    assert result.status is Status.PROVED and re.match(r"\d+ kernels, \d+ accesses", result.detail)


@pytest.mark.parametrize("only", ["rms_norm", "qkv", "quant", "gate_up", "matmul"])
@pytest.mark.parametrize("unit", [UNIT, AMX], ids=["avx2", "amx"])
def test_so_is_every_access_of_the_kernels_of_the_fast_class(unit: DotUnit, only: str):
    """Rows of two parts and of three (N15), the last one short."""
    spec = SPEC._replace(embedding_size=224, ffn_size=416)
    fast = fast_program(_lowered(spec), DType.Q16P if unit.amx else DType.Q16)
    result = attempt(lambda: prove_step(_step(fast, spec), unit, None, only))
    assert result.status is Status.PROVED and not result.detail.startswith("0 kernels"), result


@pytest.mark.parametrize("only", ["append", "attend", "merge"])
@pytest.mark.parametrize("kv_format", ["f32", "int8"])
def test_so_is_every_access_to_keys_and_values_of_the_other_formats(kv_format: str, only: str):
    spec = SPEC._replace(kv_format=kv_format)
    result = attempt(lambda: prove_step(_step(_lowered(spec), spec), UNIT, None, only))
    assert result.status is Status.PROVED, result


def test_so_is_every_access_of_attention_on_tiles():
    spec = SPEC._replace(kv_format="int8", num_heads=3)
    result = attempt(lambda: prove_step(_step(_lowered(spec), spec), AMX, None, "attend"))
    assert result.status is Status.PROVED, result


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (r"  call void @llvm.x86.tilerelease\(\)\n", "", "interrupted with tiles configured"),
        (r"(mul i64 %v\d+), 1103823438081\b", r"\1, 2207646876162", "a tile of 2"),
        (r"(mul i64 %v\d+), 1103823438081\b", r"\1, 1099511627777", "a tile of 0 rows"),
        (r"tdpbssd\(i8 0, i8 4, i8 6", "tdpbssd(i8 0, i8 6, i8 4", "sums"),
        (r"(tileloadd64\(i8 6, ptr %v\d+, i64) 64", r"\1 4096", "at %pool"),
        (r"(tilestored64\(i8 3, ptr %v\d+, i64) 64", r"\1 128", "bytes at attend_on_tiles"),
    ],
)
def test_an_edit_of_attention_on_tiles_is_refuted(old: str, new: str, says: str):
    spec = SPEC._replace(kv_format="int8")
    lowered = _lowered(spec)
    text = step_text(_step(lowered, spec), AMX)
    start = text.index("define internal void @attend_on_tiles")
    changed = text[:start] + re.sub(old, new, text[start:], count=1)
    assert changed != text
    result = attempt(lambda: prove_step(_step(lowered, spec), AMX, changed, "attend"))
    assert result.status is Status.REFUTED and says in result.detail, result


@pytest.mark.parametrize(
    ("only", "old", "new", "says"),
    [
        ("embed", r"urem i64 %v(\d+), 16", r"udiv i64 %v\1, 16", "table"),
        ("rms_norm", r"(icmp slt i64 %column1\S+), 64", r"\1, 80", "x"),
        ("qkv", r"(icmp slt i64 %token1\S+), 4", r"\1, 5", "64 bytes at"),
        ("append", r"(urem i64 %v\d+), 16", r"\1, 32", "pool"),
        ("attend_2", r"(?s)icmp sgt(?=(?:(?!icmp sgt).)*@softmax_part)", "icmp sge", "a part without a key"),
        ("matmul_q8_0", r"(mul i64 %v\d+), \d+(?=\n.*ptr %weights)", r"\1, 2000000", "weights"),
    ],
)
def test_an_edit_of_a_kernel_is_refuted(lowered: Lowered, text: str, only: str, old: str, new: str, says: str):
    start = text.index(f"define internal void @{only}")
    changed = text[:start] + re.sub(old, new, text[start:], count=1)
    assert changed != text
    result = _proved(lowered, changed, only)
    assert result.status is Status.REFUTED and says in result.detail, result


def test_a_call_with_memory_that_the_instruction_does_not_name_is_refuted(lowered: Lowered, text: str):
    index = next(i for i, op in enumerate(lowered.program) if op.row.name == "FFN")
    start = text.index(f"; {index}: FFN")
    changed = text[:start] + re.sub(r"(getelementptr i8, ptr %v4, i64) \d+", r"\1 64", text[start:], count=1)
    result = _proved(lowered, changed, only="none of them")
    assert result.status is Status.REFUTED and "which it does not name" in result.detail


def test_an_index_that_may_leave_64_bits_is_not_proved(lowered: Lowered, text: str):
    changed = text.replace("mul i64 %row1.head.i, 256", "mul i64 %row1.head.i, 1152921504606846976", 1)
    assert changed != text
    assert _proved(lowered, changed, "rms_norm").status is Status.UNKNOWN
