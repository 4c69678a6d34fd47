"""What the machine can do at best: only what is measured may be in the loop."""

from __future__ import annotations

import pytest

from benchmarks.peers.multiply import Multiplier, loop_module, products_a_round
from unsay.compiler.codegen.translate import translate
from unsay.isa.targets import find_target

_EXPECTED = {
    "amx-int8": ("tdpbssd", 4, 16 * 16 * 64), "avx512-vnni": ("vpdpbusd", 12, 64), "avx-vnni": ("vpdpbusd", 12, 32),
    "avx2": ("vpmaddubsw", 12, 32), "aarch64-i8mm": ("smmla", 12, 32), "aarch64-dotprod": ("sdot", 12, 16),
}  # fmt: skip
"""Instruction, how many are in the loop, and products of each."""


@pytest.mark.parametrize("name", _EXPECTED)
def test_a_round_is_the_best_instruction_alone(name: str) -> None:
    target, (instruction, count, products) = find_target(name), _EXPECTED[name]
    lines = translate(loop_module(target)[0].text(), target, "asm").decode().splitlines()
    places = [place for place, line in enumerate(lines) if instruction in line.split()[:2]]
    inside = lines[places[0] : places[-1] + 1]
    assert len(places) == count and products_a_round(target) == count * products
    assert not any("(" in line or "[" in line for line in inside), "memory is used"


def test_a_prompt_takes_as_long_as_its_products() -> None:
    assert Multiplier(10, 1).ask("hold", contexts=[[1]]) == {}
    assert Multiplier(10, 1).ask("prefill", ids=[1, 2])["seconds"] > 0
