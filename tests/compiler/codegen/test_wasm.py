"""The linker of WebAssembly exports what is not local, and refuses what a module of its own cannot hold."""

from __future__ import annotations

import pytest

from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.isa.targets import find_target

WASM = find_target("wasm32-simd128")


def test_functions_that_are_not_local_are_exported_by_their_index() -> None:
    text = f"""{ATTRIBUTES}
define internal i32 @helper(i32 %x) noinline #0 {{
  %y = mul i32 %x, %x
  ret i32 %y
}}
define i32 @square(i32 %x) #0 {{
  %y = call i32 @helper(i32 %x)
  ret i32 %y
}}
define i32 @same(i32 %x) #0 {{
  ret i32 %x
}}"""
    module, entry = compile_module(text, WASM)
    assert set(entry) == {"square", "same"} and len(set(entry.values())) == 2
    assert module.startswith(b"\0asm\x01\0\0\0")
    for name, index in entry.items():
        assert bytes([len(name)]) + name.encode() + bytes([0, index]) in module, "an export: name, kind, index"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("declare void @nowhere()\ndefine void @f() #0 {\n  call void @nowhere()\n  ret void\n}", "'nowhere'"),
        ("@counter = global i32 1\ndefine i32 @f() #0 {\n  %v = load i32, ptr @counter\n  ret i32 %v\n}", "'counter'"),
        ("declare float @llvm.sin.f32(float)\ndefine float @f(float %x) #0 {\n"
         "  %y = call float @llvm.sin.f32(float %x)\n  ret float %y\n}", "'sinf'"),
    ],
    ids=["undefined", "data", "library"],
)  # fmt: skip
def test_what_cannot_be_linked_is_named(text: str, what: str) -> None:
    with pytest.raises(AssertionError, match=what):
        compile_module(f"{ATTRIBUTES}\n{text}", WASM)
