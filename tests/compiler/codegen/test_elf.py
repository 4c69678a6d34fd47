"""The linker places code and constants, and refuses what a flat blob cannot hold."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from unsay.compiler.codegen import elf
from unsay.compiler.codegen.translate import ATTRIBUTES, compile_module
from unsay.isa.targets import find_target

AVX2 = find_target("avx2")


def test_constants_are_reached_from_wherever_the_blob_is_mapped() -> None:
    text = f"""{ATTRIBUTES}
define void @mask(ptr %x) #0 {{
  %v = load <8 x float>, ptr %x, align 4
  %y = fmul <8 x float> %v, <float 1.0, float 2.0, float 3.0, float 4.0, float 5.0, float 6.0, float 7.0, float 8.0>
  store <8 x float> %y, ptr %x, align 4
  ret void
}}"""
    blob, symbols = compile_module(text, AVX2)
    memory = mmap.mmap(-1, len(blob), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(blob)
    values = (ctypes.c_float * 8)(*[1.0] * 8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address + symbols["mask"])(ctypes.addressof(values))
    assert list(values) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


@pytest.mark.parametrize("target", ["avx2", "aarch64-dotprod"])
def test_an_undefined_symbol_is_refused_by_name(target: str) -> None:
    text = f"{ATTRIBUTES}\ndeclare void @nowhere()\ndefine void @f() #0 {{\n  call void @nowhere()\n  ret void\n}}"
    with pytest.raises(AssertionError, match="nowhere"):
        compile_module(text, find_target(target))


def test_references_of_aarch64_count_in_pages_and_words() -> None:
    """adrp, ldr and bl by hand: a constant 0x2030 bytes and a function 0x1000 bytes from the reference."""
    patches = elf._PATCHES[183]
    assert patches[275](0x90000000, 0x5030, 0x3000) == 0xD0000000  # adrp x0, two pages on
    assert patches[275](0x90000000, 0x1030, 0x3FFC) == 0xD0FFFFE0  # two pages back
    assert patches[299](0x3DC00000, 0x5030, 0x3000) == 0x3DC00C00  # ldr q0, [x0, #0x30]: three times 16 bytes
    assert patches[283](0x94000000, 0x4000, 0x3000) == 0x94000400  # bl, 0x400 words on
    assert patches[283](0x94000000, 0x2000, 0x3000) == 0x97FFFC00  # and back
    with pytest.raises(AssertionError):
        patches[299](0x3DC00000, 0x5038, 0x3000)


def test_writable_data_is_refused_by_name() -> None:
    text = (
        f"@counter = global i32 1\n{ATTRIBUTES}\ndefine i32 @f() #0 {{\n  %v = load i32, ptr @counter\n  ret i32 %v\n}}"
    )
    with pytest.raises(AssertionError, match=r"\.data|GOT|relocation"):
        compile_module(text, AVX2)


def test_a_loop_that_clears_memory_stays_a_loop() -> None:
    text = f"""{ATTRIBUTES}
define void @clear(ptr %x) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %x, i64 %i
  store i8 0, ptr %at
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 4096
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
    assert "clear" in compile_module(text, AVX2)[1]
