# A ROM that takes an emulated x86 CPU from reset to 64-bit mode with AVX-512 on, calls one function, and stops.
#
# The RAM image at 0x100000 begins with four u64: the function's address, its first argument, room for its result, and
# the end of the image. The second argument is 0 (the thread). `xchg bx, bx` is the emulator's breakpoint.
# Assembled by LLVM into 64 KiB mapped at 0xFFFF0000; the CPU starts at its last 16 bytes.
.code16
rom:
.org 0xF000
start:
  cli
  lgdtl %cs:(gdt_pointer - rom)
  movl %cr0, %eax
  orl $1, %eax
  movl %eax, %cr0
  ljmpl $8, $(0xFFFF0000 + protected - rom)

.code32
protected:
  movw $16, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  movl $0x100000, %ebx          # the emulator backs 128 KiB of memory at first use, and has read the RAM image as if
1:addl $0x20000, %ebx           # that order were ascending from 0x100000: make it so
  movl (%ebx), %eax
  cmpl 0x100018, %ebx
  jb 1b
  movl $0x1000, %edi            # page tables: 4 GiB mapped one to one in 1 GiB pages
  xorl %eax, %eax
  movl $0x800, %ecx
  rep stosl
  movl $0x2003, 0x1000
  movl $0x00000083, 0x2000
  movl $0x40000083, 0x2008
  movl $0x80000083, 0x2010
  movl $0xC0000083, 0x2018
  movl $0x1000, %eax
  movl %eax, %cr3
  movl $0x40620, %eax           # CR4: PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
  movl %eax, %cr4
  movl $0xC0000080, %ecx        # EFER.LME
  rdmsr
  orl $0x100, %eax
  wrmsr
  movl %cr0, %eax
  andl $0x9FFFFFFB, %eax        # caches on, no x87 emulation
  orl $0x80000002, %eax         # paging, MP
  movl %eax, %cr0
  ljmpl $24, $(0xFFFF0000 + long_mode - rom)

.code64
long_mode:
  xorl %ecx, %ecx               # XCR0: x87, SSE, AVX, AVX-512
  xorl %edx, %edx
  movl $0xE7, %eax
  xsetbv
  movl $0x90000, %esp
  movl $0x100000, %ebx
  movq 8(%rbx), %rdi
  xorl %esi, %esi
  callq *(%rbx)
  movl %eax, %eax
  movq %rax, 16(%rbx)
  xchgw %bx, %bx
  hlt

.balign 8
gdt:
  .quad 0
  .quad 0x00CF9A000000FFFF      #  8 code 32
  .quad 0x00CF92000000FFFF      # 16 data
  .quad 0x00AF9A000000FFFF      # 24 code 64
gdt_pointer:
  .word 31
  .long 0xFFFF0000 + gdt - rom

.org 0xFFF0
.code16
  jmp start
.org 0xFFFF
  .byte 0
