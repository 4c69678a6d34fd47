"""The machine code of targets this CPU may lack, executed on an emulated one: the same bits as the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.bochs import ON_BOCHS, find_bochs, make_rom, run_step
from tests.emulator.case import make_case
from unsay.isa.classes import FAST


@pytest.fixture(scope="session")
def bochs() -> Path:
    return find_bochs()


@pytest.fixture(scope="session")
def rom() -> bytes:
    return make_rom()


@pytest.mark.parametrize("variant", ["llama-q4_1", "llama-q4_0-d32", "llama-q8_0-d64", "llama-f16-untied"])
@pytest.mark.parametrize("target", sorted(ON_BOCHS))
def test_target_gives_the_bits_of_the_reference(
    target: str, variant: str, tiny_paths: dict[str, Path], bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    case = make_case(tiny_paths[variant])
    code = case.code(ON_BOCHS[target])
    case.assert_equal(*run_step(bochs, rom, code.blob, code.entry["step"], case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("target", sorted(ON_BOCHS))
def test_so_it_does_in_the_fast_class(
    target: str, is_wide: bool, tiny_paths: dict[str, Path], wide_path: Path, bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    case = make_case(wide_path if is_wide else tiny_paths["llama-q8_0-d64"], prefill=FAST)
    code = case.code(ON_BOCHS[target])
    case.assert_equal(*run_step(bochs, rom, code.blob, code.entry["step"], case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("target", sorted(ON_BOCHS))
def test_so_it_does_with_int8_pages(
    target: str, tiny_paths: dict[str, Path], bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    case = make_case(tiny_paths["llama-q8_0-d64"], decode=True, kv="int8")
    code = case.code(ON_BOCHS[target])
    case.assert_equal(*run_step(bochs, rom, code.blob, code.entry["step"], case.arrays, case.counts, tmp_path))
