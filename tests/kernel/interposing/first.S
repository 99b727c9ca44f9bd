# A static program that writes its registers, and the stack below, as they are at its first instruction.
.globl _start
_start:
    movq %rsp, saved+128(%rip)
    leaq saved+128(%rip), %rsp
    pushfq
    pushq %rax; pushq %rbx; pushq %rcx; pushq %rdx; pushq %rsi; pushq %rdi; pushq %rbp
    pushq %r8; pushq %r9; pushq %r10; pushq %r11; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movl $1, %eax; movl $1, %edi; leaq saved(%rip), %rsi; movl $136, %edx; syscall
    movl $1, %eax; movl $1, %edi; movq saved+128(%rip), %rsi; subq $4096, %rsi; movl $4160, %edx; syscall
    movl $60, %eax; xorl %edi, %edi; syscall
.bss
saved: .space 256
