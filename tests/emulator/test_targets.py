"""The machine code of targets this CPU may lack, executed on an emulated one: the same bits as the reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.emulator.bochs import find_bochs, run_step
from tests.emulator.case import make_case
from unsay.compiler.codegen import translate
from unsay.isa.classes import FAST
from unsay.isa.targets import find_target

_ON_EMULATOR = {
    "avx512-vnni": find_target("avx512-vnni"),
    # The emulated CPU has vpdpbusd on 32-byte registers in its AVX-512 (EVEX) form only: same operation, same text.
    "avx-vnni": find_target("avx-vnni")._replace(
        llvm_cpu="x86-64-v4", llvm_features="+avx512vnni,+prefer-256-bit,-avxvnni"
    ),
    "avx2": find_target("avx2"),
}


@pytest.fixture(scope="session")
def bochs() -> Path:
    return find_bochs()


@pytest.fixture(scope="session")
def rom() -> bytes:
    """boot.s, assembled by LLVM."""
    lines = [line.split("#")[0].rstrip() for line in (Path(__file__).parent / "boot.s").read_text().splitlines()]
    quoted = [json.dumps(line) for line in lines if line]
    target = find_target("avx2")
    text = f'target triple = "{target.triple}"\n' + "\n".join(f"module asm {line}" for line in quoted)
    blob, _ = translate.compile_module(text, target)
    return blob


@pytest.mark.parametrize("variant", ["llama-q4_1", "llama-q4_0-d32", "llama-q8_0-d64", "llama-f16-untied"])
@pytest.mark.parametrize("target", sorted(_ON_EMULATOR))
def test_target_gives_the_bits_of_the_reference(
    target: str, variant: str, tiny_paths: dict[str, Path], bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    case = make_case(tiny_paths[variant])
    code = case.code(_ON_EMULATOR[target])
    case.assert_equal(*run_step(bochs, rom, code.blob, code.entry["step"], case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("target", sorted(_ON_EMULATOR))
def test_so_it_does_in_the_fast_class(
    target: str, is_wide: bool, tiny_paths: dict[str, Path], wide_path: Path, bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    case = make_case(wide_path if is_wide else tiny_paths["llama-q8_0-d64"], prefill=FAST)
    code = case.code(_ON_EMULATOR[target])
    case.assert_equal(*run_step(bochs, rom, code.blob, code.entry["step"], case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("target", sorted(_ON_EMULATOR))
def test_so_it_does_with_int8_pages(
    target: str, tiny_paths: dict[str, Path], bochs: Path, rom: bytes, tmp_path: Path
) -> None:
    case = make_case(tiny_paths["llama-q8_0-d64"], decode=True, kv="int8")
    code = case.code(_ON_EMULATOR[target])
    case.assert_equal(*run_step(bochs, rom, code.blob, code.entry["step"], case.arrays, case.counts, tmp_path))
