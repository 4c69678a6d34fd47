"""Threads that share a product write every element of it once, whoever is slower: the emitted text, in many orders."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.compiler.codegen.steps import UNITS
from tests.compiler.codegen.threads import stores_of
from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.matmul import matmul
from unsay.compiler.codegen.kernels.tile import Product
from unsay.compiler.verify.kernels.text import functions
from unsay.isa.formats import DType

ROWS, CAPACITY, SEEDS = 7 * 16, 12, range(12)


@cache
def text_of(x_dtype: DType, width: int) -> tuple[str, str]:
    """A product of seven row groups with the text of its module, and the name of the kernel."""
    module = Module("")
    name = matmul(module, UNITS["avx2"], Product(DType.Q4_1, ROWS, width, x_dtype, CAPACITY), False, True, ROWS)
    return module.text(), name


def faults(text: str, name: str, threads: int, count: int) -> list[str]:
    """Orders in which something is not written once."""
    kernel = functions(text)[name]
    wanted = {(4 * ROWS * token + 64 * group, 64): 1 for token in range(count) for group in range(ROWS // 16)}
    return [f"order {seed}" for seed in SEEDS if stores_of(kernel, threads, count, seed) != wanted]


@pytest.mark.parametrize("threads", [1, 2, 3, 5, 9])
@pytest.mark.parametrize(
    ("x_dtype", "width", "count"),
    [(DType.Q8A, 64, 1), (DType.Q8A, 64, 2), (DType.Q8W, 64, 7), (DType.Q8A, 8192, 9), (DType.Q16, 64, 9)],
    ids=["one token", "two", "seven", "chunks", "fast class"],
)
def test_every_element_of_a_product_is_written_once(x_dtype: DType, width: int, count: int, threads: int):
    assert faults(*text_of(x_dtype, width), threads, count) == []


@pytest.mark.parametrize(
    ("width", "count", "old", "new"),
    [
        (64, 1, r"(@deal\(ptr %args, i64 %\w+, i64) 1", r"\1 0"),
        (64, 1, r"(@deal\(ptr %args, i64) %\w+", r"\1 0"),
        (64, 1, r"icmp slt (i64 %\w+, %\w+\n  br i1 %\w+, label %if2)", r"icmp sle \1"),
        (64, 1, r"(icmp slt i64 %\w+), 7(?=\n  br i1 %\w+, label %if3)", r"\1, 8"),
        (64, 7, r"(icmp slt i64 %turn5\.head\.i), %\w+", r"\1, 2"),
        (64, 7, r"(?s)(turn6\.body:.*?mul i64 7,) %\w+", r"\1 %thread"),
        (8192, 9, r"zext i1 %\w+ to i64", "zext i1 1 to i64"),
        (8192, 9, r"(select i1 %\w+, i64) 11, i64 %\w+(?=\n  br label %turn5)", r"\1 11, i64 11"),
    ],
    ids=["none is got", "the first's", "one more", "pair", "few turns", "own begin", "got too early", "turns"],
)
def test_another_way_to_share_is_found_out(width: int, count: int, old: str, new: str):
    text, name = text_of(DType.Q8A, width)
    start = text.index(f"@{name}(")
    changed = text[:start] + re.sub(old, new, text[start:], count=1)
    assert changed != text and faults(changed, name, 3, count) != []
