"""How a thread pauses while it spins, and sleeps: the two things that differ between architectures.

`futex` is Linux's: operation 128 waits while the word is %value, 129 wakes %value sleepers. WebAssembly has both
as instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from unsay.compiler.codegen.kernels.dot import Architecture


@dataclass(frozen=True, slots=True)
class Waiting:
    """IR text of the functions `void pause()` and `void futex(ptr word, i64 operation, i64 value)`."""

    pause: str
    futex: str


WAITING: dict[Architecture, Waiting] = {
    "x86": Waiting(
        """
declare void @llvm.x86.sse2.pause()
define internal void @pause() alwaysinline #0 {
  call void @llvm.x86.sse2.pause()
  ret void
}""",
        """
; futex system call: 128 waits while %word is %value, 129 wakes %value sleepers
define internal void @futex(ptr %word, i64 %operation, i64 %value) #0 {
  call i64 asm sideeffect "syscall", "={rax},{rax},{rdi},{rsi},{rdx},{r10},~{rcx},~{r11},~{memory}"(
    i64 202, ptr %word, i64 %operation, i64 %value, i64 0)
  ret void
}""",
    ),
    "aarch64": Waiting(
        """
declare void @llvm.aarch64.hint(i32)
define internal void @pause() alwaysinline #0 {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}""",
        """
; futex system call: 128 waits while %word is %value, 129 wakes %value sleepers
;   mov x8, #98;  mov x3, #0;  svc #0;  ret           as numbers: llvmlite has no assembler for AArch64
; weak, so that LLVM does not conclude from the body that nothing reads the arguments
define weak hidden void @futex(ptr %word, i64 %operation, i64 %value) noinline optnone #0
    prologue [4 x i32] [i32 u0xD2800C48, i32 u0xD2800003, i32 u0xD4000001, i32 u0xD65F03C0] {
  ret void
}""",
    ),
    "wasm": Waiting(
        """
; WebAssembly has no such instruction
define internal void @pause() alwaysinline #0 {
  ret void
}""",
        """
; as Linux's futex: 128 waits while %word is %value, 129 wakes %value sleepers
declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)
declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)
define internal void @futex(ptr %word, i64 %operation, i64 %value) #0 {
  %number = trunc i64 %value to i32
  %waits = icmp eq i64 %operation, 128
  br i1 %waits, label %wait, label %wake
wait:
  %woken = call i32 @llvm.wasm.memory.atomic.wait32(ptr %word, i32 %number, i64 -1)
  ret void
wake:
  %count = call i32 @llvm.wasm.memory.atomic.notify(ptr %word, i32 %number)
  ret void
}""",
    ),
}
