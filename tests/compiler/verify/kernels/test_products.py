"""Tiles of every target compute N4, and edits of their text are refuted."""

import re

import pytest

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.dot import dot_unit
from unsay.compiler.codegen.kernels.tile import Product, notes_function, pair_function, tile_function
from unsay.compiler.verify.kernels.products import prove_tile
from unsay.compiler.verify.obligation import Result, Status, attempt
from unsay.isa.formats import DType
from unsay.isa.targets import TARGETS, find_target

CASES = [("amx-int8", "Q4_1", "Q8A", 1), ("avx512-vnni", "Q8_0", "Q8W", 1), ("avx-vnni", "Q4_0", "Q8A", 2),
         ("avx2", "Q4_1", "Q8W", 1), ("avx2", "Q8_0", "Q8A", 1), ("aarch64-i8mm", "Q4_1", "Q8A", 2),
         ("aarch64-dotprod", "Q8_0", "Q8A", 1), ("wasm32-simd128", "Q4_0", "Q8A", 1)]  # fmt: skip


def _product(dtype: str, x: str = "Q8A") -> Product:
    return Product(DType[dtype], 64, 64, DType[x], 8)


def test_every_target_of_the_table_is_proved_here():
    assert {name for name, *_ in CASES} == {target.name for target in TARGETS}


@pytest.mark.parametrize(("target", "dtype", "x", "tokens"), CASES)
def test_a_tile_computes_n4(target: str, dtype: str, x: str, tokens: int):
    proved = Result(Status.PROVED, f"{tokens * 16} claims")
    assert prove_tile(dot_unit(find_target(target)), _product(dtype, x), tokens) == proved


@pytest.mark.parametrize(
    ("target", "dtype", "x"),
    [("avx512-vnni", "Q4_1", "Q8W"), ("avx2", "Q4_1", "Q8W"), ("avx2", "Q8_0", "Q8W"), ("aarch64-i8mm", "Q4_0", "Q8A"),
     ("wasm32-simd128", "Q8_0", "Q8A")],
)  # fmt: skip
def test_a_pair_of_row_groups_computes_n4(target: str, dtype: str, x: str):
    proved = Result(Status.PROVED, "32 claims")
    assert prove_tile(dot_unit(find_target(target)), _product(dtype, x), 1, kind="pair") == proved


def test_row_groups_that_change_places_are_refuted():
    unit, product, module = dot_unit(find_target("avx2")), _product("Q4_1"), Module("")
    notes_function(module, unit, product, 1)
    pair_function(module, unit, product)
    changed = module.text().replace("%weights", "%tmp").replace("%second", "%weights").replace("%tmp", "%second")
    changed = changed.replace("ptr %second, ptr %weights", "ptr %weights, ptr %second")
    result = attempt(lambda: prove_tile(unit, product, 1, changed, "pair"))
    assert result.status is Status.REFUTED and "weights, token 0, row 0" in result.detail


def _mutant(dtype: str, x: str, old: str, new: str) -> Result:
    """The tile of avx2 for one token, with the last place of `old` in its text changed."""
    unit, product, module = dot_unit(find_target("avx2")), _product(dtype, x), Module("")
    notes_function(module, unit, product, 1)
    tile_function(module, unit, product, 1)
    text = module.text()
    last = list(re.finditer(old, text))[-1]
    changed = text[: last.start()] + last.expand(new) + text[last.end() :]
    assert changed != text
    return attempt(lambda: prove_tile(unit, product, 1, changed))


@pytest.mark.parametrize(
    ("dtype", "x", "old", "new"),
    [
        ("Q4_1", "Q8A", r"(lshr .*), splat \(i8 4\)", r"\1, splat (i8 3)"),
        ("Q4_1", "Q8A", r"splat \(i8 15\)", "splat (i8 7)"),
        ("Q4_1", "Q8W", r"splat \(i32 7\)", "splat (i32 6)"),
        ("Q4_1", "Q8W", r"add <8 x i32>", "sub <8 x i32>"),
        ("Q4_1", "Q8W", r"icmp ne i32", "icmp eq i32"),
        ("Q4_1", "Q8A", r"fmul <8 x float>", "fadd <8 x float>"),
        ("Q4_1", "Q8A", r"sitofp <8 x i32>", "uitofp <8 x i32>"),
        ("Q4_1", "Q8A", r"i64 288", "i64 256"),
        ("Q4_1", "Q8A", r"splat \(float 0x0+\)", "splat (float 0x3FF0000000000000)"),
        ("Q4_1", "Q8A", r"(icmp slt i64 %\S+), 2", r"\1, 1"),
        ("Q4_1", "Q8A", r"ptr %sums, i64 32", "ptr %sums, i64 0"),
        ("Q4_1", "Q8A", r"ptr %sums, i64 32", "ptr %sums, i64 64"),
        ("Q4_1", "Q8A", r"(next = add nsw i64 %\S+), 1", r"\1, 2"),
        ("Q4_1", "Q8A", r"(mul i64 %block1.head.i), 32", r"\1, 36"),
        ("Q4_1", "Q8A", r"(fma.v8f32\(<8 x float> (%\w+), <8 x float>) %\w+", r"\1 \2"),
        ("Q8_0", "Q8A", r"(ashr .*), splat \(i16 8\)", r"\1, splat (i16 7)"),
        ("Q8_0", "Q8A", r"(shl .*), splat \(i16 8\)", r"\1, splat (i16 7)"),
        ("Q8_0", "Q8W", r"(shl .*), splat \(i16 7\)", r"\1, splat (i16 6)"),
    ],
)
def test_an_edit_of_the_text_is_refuted(dtype: str, x: str, old: str, new: str):
    result = _mutant(dtype, x, old, new)
    assert result.status is Status.REFUTED, result
    assert result.detail


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"i32 0, i32 0>(?=\n  %\w+ = bitcast)", "i32 0, i32 1>"),
        (r"i32 0, i32 0>(?=\n  %\w+ = load <8 x float>)", "i32 0, i32 1>"),
        (r"next = add nsw", "next = sub nsw"),
        (r"icmp slt i64 (%block1)", r"icmp sle i64 \1"),
        (r"call <8 x float> @llvm\.fma\.", "call <8 x float> @llvm.fmuladd."),
    ],
)
def test_what_the_execution_does_not_follow_is_unknown(old: str, new: str):
    result = _mutant("Q4_1", "Q8A", old, new)
    assert result.status is Status.UNKNOWN and result.detail.startswith("IR text: ")
