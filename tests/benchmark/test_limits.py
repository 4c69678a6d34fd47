"""What the machine can do at best: only what is measured may be in the loop."""

from __future__ import annotations

import pytest

from benchmarks.kv_reading import in_one_piece, in_order
from benchmarks.peers.multiply import Multiplier, loop_module, products_a_round
from unsay.compiler.codegen.translate import translate
from unsay.isa.formats import DType
from unsay.isa.kv import KvLayout
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


@pytest.mark.parametrize("dtype", [DType.F16, DType.I8])
def test_each_byte_of_the_keys_and_values_is_read_once(dtype: DType) -> None:
    layout, num_pages = KvLayout(3, 2, 64, dtype), 37
    pieces = sorted(piece for mine in in_order(layout, num_pages, 2) for piece in mine)
    ends = [0, *(offset + size for offset, size in pieces)]
    gaps = [offset - end for (offset, _), end in zip(pieces, ends, strict=False)]
    assert min(gaps) >= 0 and sum(size for _, size in pieces) == num_pages * layout.used_bytes
    assert ends[-1] <= num_pages * layout.page_bytes
    whole = [piece for mine in in_one_piece(layout.used_bytes, 2) for piece in mine]
    assert [offset for offset, _ in whole] == [place * whole[0][1] for place in range(4)]
    assert 0 <= layout.used_bytes - sum(size for _, size in whole) < 4 * 64


def test_a_part_of_a_head_is_keys_of_its_pages_then_values() -> None:
    layout = KvLayout(1, 1, 64)
    (mine,) = in_order(layout, 3, 1)
    keys, values = layout.key_offset(0, 0), layout.value_offset(0, 0)
    assert [offset for offset, _ in mine] == [
        page * layout.page_bytes + at for at in (keys, values) for page in range(3)
    ]
