"""AArch64 machine code in QEMU and WebAssembly in Node, from the kernel source of x86: the bits of the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator import node, qemu
from tests.emulator.case import make_case
from unsay.isa.classes import FAST
from unsay.isa.targets import find_target


@pytest.fixture(scope="session")
def start() -> tuple[bytes, int]:
    return qemu.start_code()


@pytest.mark.parametrize(
    ("target", "variant"),
    [
        ("aarch64-dotprod", "llama-q4_1"),
        ("aarch64-dotprod", "llama-f16-untied"),
        ("aarch64-i8mm", "llama-q4_0-d32"),
        ("aarch64-i8mm", "llama-q8_0-d64"),
    ],
)
def test_aarch64_gives_the_bits_of_the_reference(
    target: str, variant: str, tiny_paths: dict[str, Path], start: tuple[bytes, int], tmp_path: Path
) -> None:
    prompts, decode = make_case(tiny_paths[variant]), make_case(tiny_paths[variant], decode=True)
    code = prompts.code(find_target(target))
    for case in (prompts, decode):
        case.assert_equal(*qemu.run_step(qemu.find_qemu(), start, code, case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("target", ["aarch64-dotprod", "aarch64-i8mm"])
def test_so_does_aarch64_with_int8_pages(
    target: str, tiny_paths: dict[str, Path], start: tuple[bytes, int], tmp_path: Path
) -> None:
    prompts, decode = (make_case(tiny_paths["llama-q8_0-d64"], decode=many, kv="int8") for many in (False, True))
    code = prompts.code(find_target(target))
    for case in (prompts, decode):
        case.assert_equal(*qemu.run_step(qemu.find_qemu(), start, code, case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("target", ["aarch64-dotprod", "aarch64-i8mm"])
def test_so_does_aarch64_in_the_fast_class(
    target: str, wide_path: Path, start: tuple[bytes, int], tmp_path: Path
) -> None:
    prompts, decode = (make_case(wide_path, decode=many, prefill=FAST) for many in (False, True))
    code = prompts.code(find_target(target))
    for case in (prompts, decode):
        case.assert_equal(*qemu.run_step(qemu.find_qemu(), start, code, case.arrays, case.counts, tmp_path))


def test_so_does_webassembly_in_the_fast_class(wide_path: Path, tmp_path: Path) -> None:
    prompts, decode = (make_case(wide_path, decode=many, prefill=FAST) for many in (False, True))
    code = prompts.code(find_target("wasm32-simd128"))
    for case in (prompts, decode):
        case.assert_equal(*node.run_step(node.find_node(), code, case.arrays, case.counts, tmp_path))


def test_so_does_webassembly_with_int8_pages(tiny_paths: dict[str, Path], tmp_path: Path) -> None:
    prompts, decode = (make_case(tiny_paths["llama-q8_0-d64"], decode=many, kv="int8") for many in (False, True))
    code = prompts.code(find_target("wasm32-simd128"))
    for case in (prompts, decode):
        case.assert_equal(*node.run_step(node.find_node(), code, case.arrays, case.counts, tmp_path))


@pytest.mark.parametrize("variant", ["llama-q4_1", "llama-q8_0-d64", "llama-f16-untied"])
def test_webassembly_gives_the_bits_of_the_reference(variant: str, tiny_paths: dict[str, Path], tmp_path: Path) -> None:
    prompts, decode = make_case(tiny_paths[variant]), make_case(tiny_paths[variant], decode=True)
    code = prompts.code(find_target("wasm32-simd128"))
    for case in (prompts, decode):
        case.assert_equal(*node.run_step(node.find_node(), code, case.arrays, case.counts, tmp_path))
