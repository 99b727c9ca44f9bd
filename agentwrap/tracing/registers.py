"""A call as it lies in a stopped tracee's registers (x86-64, sys/user.h), and another one put in its place. Pure.

A 32-bit program's registers are told in the same layout. A call's number is kept apart from what it returns: only so
can the kernel begin it anew after a signal.
"""

import struct
from collections.abc import Sequence

from agentwrap.launching.seccomp import ARCH_I386

SIZE = 27 * 8
# struct user_regs_struct, in units of 8 bytes
_RBP, _RBX, _R10, _R9, _R8, _RAX, _RDX, _RSI, _RDI, _NUMBER, _IP = 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16
_ARGUMENTS = (_RDI, _RSI, _RDX, _R10, _R8, _R9)
_ARGUMENTS_I386 = (_RBX, 11, _RDX, _RSI, _RDI, _RBP)  # 11: rcx
_CS, _SP, _CS_64 = 17, 19, 0x33
_INSTRUCTION_BYTES = 2  # syscall, int $0x80
_layout = struct.Struct("=27Q")
_MASK = (1 << 64) - 1
NO_CALL = -1


def with_call(registers: bytes, arch: int, number: int, arguments: Sequence[int]) -> bytes:
    """At the entry to a call: that another one is made."""
    words = list(_layout.unpack(registers))
    words[_NUMBER] = number & _MASK
    for at, argument in zip(_ARGUMENTS_I386 if arch == ARCH_I386 else _ARGUMENTS, arguments, strict=False):
        words[at] = argument & (0xFFFFFFFF if arch == ARCH_I386 else _MASK)
    return _layout.pack(*words)


def about_to_call(registers: bytes, instruction: int, number: int, arguments: Sequence[int]) -> bytes:
    """Between two instructions of a 64-bit program: that it makes a call next, by a `syscall` that lies there."""
    words = list(_layout.unpack(registers))
    words[_IP], words[_RAX], words[_NUMBER] = instruction, number, NO_CALL & _MASK
    for at, argument in zip(_ARGUMENTS, arguments, strict=False):
        words[at] = argument & _MASK
    return _layout.pack(*words)


def is_wide(registers: bytes) -> bool:
    """Whether they are those of a 64-bit program (arch/x86/include/asm/segment.h, __USER_CS)."""
    return int(_layout.unpack(registers)[_CS]) == _CS_64


def pointers(registers: bytes) -> tuple[int, int]:
    """Instruction and stack pointer."""
    words = _layout.unpack(registers)
    return words[_IP], words[_SP]


def with_result(registers: bytes, value: int) -> bytes:
    """What the call returned; a negative errno for a failure."""
    words = list(_layout.unpack(registers))
    words[_RAX] = value & _MASK
    return _layout.pack(*words)


def once_more(registers: bytes) -> bytes:
    """At the exit from a call, with the registers of its entry: that the program makes it once more."""
    words = list(_layout.unpack(registers))
    words[_RAX], words[_NUMBER] = words[_NUMBER], NO_CALL & _MASK
    words[_IP] -= _INSTRUCTION_BYTES
    return _layout.pack(*words)


def result(registers: bytes) -> int:
    """What a call returned: a negative errno for a failure."""
    value = int(_layout.unpack(registers)[_RAX])
    return value - (1 << 64) if value >> 63 else value
