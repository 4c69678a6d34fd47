"""LLVM's back ends end the process they fail in: it is never ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.errors import TargetError
from unsay.isa.targets import find_target

AVX2_ONLY = f"""{ATTRIBUTES}
declare <32 x i8> @llvm.x86.avx2.psign.b(<32 x i8>, <32 x i8>)
define void @f(ptr %x) #0 {{
  %a = load <32 x i8>, ptr %x
  %b = call <32 x i8> @llvm.x86.avx2.psign.b(<32 x i8> %a, <32 x i8> %a)
  store <32 x i8> %b, ptr %x
  ret void
}}"""


@pytest.mark.parametrize("target", ["aarch64-i8mm", "wasm32-simd128"])
def test_what_a_back_end_cannot_select_is_an_error_with_its_words(target: str) -> None:
    with pytest.raises(TargetError, match=rf"LLVM cannot make {target} code: .*psign"):
        compile_module(AVX2_ONLY, find_target(target))


def test_a_process_that_was_killed_says_how_it_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(killed))
    with pytest.raises(TargetError, match="its process ended with -9 and said nothing"):
        compile_module(AVX2_ONLY, find_target("aarch64-i8mm"))


def test_text_that_is_no_ir_is_an_error_with_line_and_column() -> None:
    with pytest.raises(TargetError, match=r"<string>:1:1: error: expected top-level entity"):
        compile_module("nonsense", find_target("aarch64-dotprod"))
