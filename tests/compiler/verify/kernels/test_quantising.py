"""QUANT makes N3 and N3w, and what N4 takes for granted follows; edits of the text are refuted."""

import pytest

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.elementwise import quantise
from unsay.compiler.verify.kernels.quantising import prove_premises, prove_quantising
from unsay.compiler.verify.obligation import Status, attempt
from unsay.isa.formats import DType


@pytest.mark.parametrize("dtype", [DType.Q8A, DType.Q8W])
def test_quant_makes_the_blocks_of_n3(dtype: DType):
    assert prove_quantising(dtype).status is Status.PROVED


@pytest.mark.parametrize(("dtype", "old", "new"), [
    (DType.Q8A, "float 0x405FC00000000000", "float 0x405F800000000000"),
    (DType.Q8W, "splat (i32 64)", "splat (i32 0)"),
    (DType.Q8W, "splat (i32 7)", "splat (i32 6)"),
    (DType.Q8W, "i32 -128", "i32 -64"),
    (DType.Q8W, "zext <16 x i1>", "sext <16 x i1>"),
    (DType.Q8W, "fdiv <16 x float> %v87, %v79", "fdiv <16 x float> %v79, %v87"),
    (DType.Q8W, "i64 16\n", "i64 8\n"),
])  # fmt: skip
def test_an_edit_of_the_text_is_refuted(dtype: DType, old: str, new: str):
    module = Module("")
    quantise(module, dtype, 64, 8)
    text = module.text()
    assert old in text
    result = attempt(lambda: prove_quantising(dtype, text.replace(old, new, 1)))
    assert result.status is Status.REFUTED, result


def test_what_n4_takes_for_granted_follows_and_another_lift_breaks_it():
    assert prove_premises().status is Status.PROVED
    assert all(prove_premises(lift).status is Status.REFUTED for lift in (63, 65))
