"""The entries for the sampler stay inside their arrays, for a row of any length."""

from __future__ import annotations

import re

import pytest

from unsay.compiler.codegen.builder import Module
from unsay.compiler.codegen.kernels.scan import add_scan
from unsay.compiler.verify.kernels.scan import prove_scan
from unsay.compiler.verify.obligation import Status, attempt


@pytest.fixture(scope="module")
def text() -> str:
    module = Module("")
    add_scan(module)
    return module.text()


def test_every_access_of_survey_and_race_is_inside(text: str):
    result = attempt(lambda: prove_scan(text))
    assert result.status is Status.PROVED and result.detail.startswith("2 kernels, 30 accesses"), result


@pytest.mark.parametrize(
    ("entry", "old", "new", "says"),
    [
        ("survey", r"(icmp slt i64 %part1\.head\.i), %count", r"\1, 4294967296", "%largest"),
        ("survey", r"icmp slt (i64 %v\d+, %count)", r"icmp sgt \1", "%row"),
        ("survey", r"(mul i64 %largest1\.head\.i), 4", r"\1, 8", "%row"),
        ("survey", r"(next = add nsw i64 %largest1\.head\.i), 16", r"\1, 12", "%row"),
        ("survey", r"(udiv i64 %part1\.head\.i), 256", r"\1, 128", "%largest"),
        ("survey", r"(udiv i64 %part\d+\.head\.i), 256(?=\n.*ptr %weight)", r"\1, 255", "%weight"),
        ("race", r"(next = add nsw i64 %token1\.head\.i), 32", r"\1, 16", "%row"),
        ("race", r"(add i64 %token1\.head\.i), 16", r"\1, 48", "%row"),
        ("race", r"(ptr %words, i64) %v\d+", r"\1 -4", "%words"),
        ("race", r"(mul i64 %v\d+), 4(?=\n.*ptr %bounds)", r"\1, 8", "%bounds"),
        ("race", r"(udiv i64 %part1\.head\.i), 256", r"\1, 64", "%reach"),
    ],
)
def test_an_edit_of_an_entry_is_refuted(text: str, entry: str, old: str, new: str, says: str):
    start = text.index(f"@{entry}(")
    changed = text[:start] + re.sub(old, new, text[start:], count=1)
    assert changed != text
    result = attempt(lambda: prove_scan(changed))
    assert result.status is Status.REFUTED and says in result.detail, result
