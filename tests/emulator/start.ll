; A static AArch64 Linux program without a library: one step on two threads, then the memory to standard output.
;
; At 0x401000 the image has nine u64: the functions run, worker and close; their pool and arguments; the end of the
; second thread's stack; the address and length of the image; room for the step's result.
;
; What needs an instruction of its own is the prologue of a function, in numbers: llvmlite has no assembler for AArch64. The
; functions are weak so that LLVM does not conclude from their bodies that nothing reads the arguments.

; mov x8, x3;  svc #0;  ret
define weak hidden i64 @system(i64 %a, i64 %b, i64 %c, i64 %number) noinline optnone nounwind
    prologue [3 x i32] [i32 u0xAA0303E8, i32 u0xD4000001, i32 u0xD65F03C0] {
  ret i64 0
}

; mov x8, #220;  svc #0;  cbz x0, child;  ret;  child: mov x0, x6;  mov x1, x7;  blr x5;  mov x8, #93;  svc #0
define weak hidden i64 @clone(i64 %flags, i64 %stack, i64 %b, i64 %c, i64 %d, ptr %function, ptr %pool, i64 %thread)
    noinline optnone nounwind
    prologue [9 x i32] [i32 u0xD2801B88, i32 u0xD4000001, i32 u0xB4000040, i32 u0xD65F03C0,
                        i32 u0xAA0603E0, i32 u0xAA0703E1, i32 u0xD63F00A0, i32 u0xD2800BA8, i32 u0xD4000001] {
  ret i64 0
}

define void @_start() noreturn nounwind {
entry:
  %run = load ptr, ptr inttoptr (i64 u0x401000 to ptr)
  %worker = load ptr, ptr inttoptr (i64 u0x401008 to ptr)
  %close = load ptr, ptr inttoptr (i64 u0x401010 to ptr)
  %pool = load ptr, ptr inttoptr (i64 u0x401018 to ptr)
  %arguments = load ptr, ptr inttoptr (i64 u0x401020 to ptr)
  %stack = load i64, ptr inttoptr (i64 u0x401028 to ptr)
  %image = load i64, ptr inttoptr (i64 u0x401030 to ptr)
  %length = load i64, ptr inttoptr (i64 u0x401038 to ptr)
  ; CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM
  %id = call i64 @clone(i64 u0x50F00, i64 %stack, i64 0, i64 0, i64 0, ptr %worker, ptr %pool, i64 1)
  %result = call i32 %run(ptr %pool, ptr %arguments)
  call void %close(ptr %pool)
  store i32 %result, ptr inttoptr (i64 u0x401040 to ptr)
  br label %write
write:
  %done = phi i64 [ 0, %entry ], [ %more, %write ]
  %from = add i64 %image, %done
  %rest = sub i64 %length, %done
  %written = call i64 @system(i64 1, i64 %from, i64 %rest, i64 64)
  %more = add i64 %done, %written
  %whole = icmp eq i64 %more, %length
  br i1 %whole, label %leave, label %write
leave:
  %gone = call i64 @system(i64 0, i64 0, i64 0, i64 94)
  unreachable
}
