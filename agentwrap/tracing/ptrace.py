"""ptrace(2) as the tracer uses it: about a dozen requests, nothing else.

`PyDLL` keeps the interpreter lock: none of these requests blocks, and dropping the lock costs more than the call.
All requests must come from the thread that did `seize`.
"""

import ctypes
import os
import struct

from agentwrap.launching.seccomp import ARCH_I386, ARCH_X86_64

OPT_SYSGOOD, OPT_FORK, OPT_VFORK, OPT_CLONE, OPT_EXEC = 1, 2, 4, 8, 16
OPT_SECCOMP, OPT_EXITKILL = 0x80, 1 << 20
FOLLOW = OPT_SYSGOOD | OPT_FORK | OPT_VFORK | OPT_CLONE | OPT_EXEC | OPT_EXITKILL

EVENT_FORK, EVENT_VFORK, EVENT_CLONE, EVENT_EXEC, EVENT_SECCOMP, EVENT_STOP = 1, 2, 3, 4, 7, 128
WALL = 0x40000000

_CONT, _SYSCALL, _POKEUSER, _GETEVENTMSG, _GETSIGINFO = 7, 24, 6, 0x4201, 0x4202
_SEIZE, _LISTEN, _DETACH, _GET_SYSCALL_INFO = 0x4206, 0x4208, 17, 0x420E
_OP_EXIT = 2  # PTRACE_SYSCALL_INFO_EXIT
_ORIG_RAX, _RAX = 8 * 15, 8 * 10  # sys/user.h, struct user_regs_struct
_GETREGS, _SETREGS = 12, 13
_INTERRUPT = 0x4207
_GETSIGMASK, _SETSIGMASK, _SIGMASK_BYTES = 0x420A, 0x420B, 8
_ERESTARTSYS, _ERESTARTNOINTR = 512, 513  # linux/errno.h: what a call "returns" until its signal is delivered
_CS_32 = 0x23  # arch/x86/include/asm/segment.h, __USER32_CS

_libc = ctypes.PyDLL(None)
_ptrace = _libc.ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long
_errno_location = _libc.__errno_location
_errno_location.restype = ctypes.POINTER(ctypes.c_int)

_message = (ctypes.c_ulong * 1)()
_message_address = ctypes.addressof(_message)
_registers = bytearray(27 * 8)
_registers_address = ctypes.addressof((ctypes.c_char * len(_registers)).from_buffer(_registers))
_unpack_registers = struct.Struct("=10Qq4Qi4xQQ").unpack_from
_info = bytearray(128)
_info_address = ctypes.addressof((ctypes.c_char * 128).from_buffer(_info))
# struct ptrace_syscall_info: op u8, pad, arch u32, instruction_pointer u64, stack_pointer u64, then nr and six args
_unpack_syscall = struct.Struct("=B3xIQQQ6Q").unpack_from
_unpack_siginfo = struct.Struct("=iii4xiI").unpack_from


def _fail(what: str) -> OSError:
    number = _errno_location()[0]
    return OSError(number, f"{what}: {os.strerror(number)}")


def seize(pid: int, options: int) -> None:
    """PTRACE_SEIZE: attach without stopping. Raises OSError (EPERM: another tracer, Yama, a container's profile)."""
    if _ptrace(_SEIZE, pid, None, options) < 0:
        raise _fail("PTRACE_SEIZE")


def resume(tid: int, signal: int = 0) -> None:
    """PTRACE_CONT with a signal to deliver. A tracee that died meanwhile (ESRCH) is reported by waitpid, not here."""
    _ptrace(_CONT, tid, None, signal)


def resume_to_call(tid: int, signal: int = 0) -> None:
    """PTRACE_SYSCALL: as `resume`, up to the next entry to or exit from a system call."""
    _ptrace(_SYSCALL, tid, None, signal)


def interrupt(tid: int) -> None:
    """PTRACE_INTERRUPT: a call that sleeps ends as by a signal, and begins anew when the tracee goes on."""
    _ptrace(_INTERRUPT, tid, None, None)


def listen(tid: int) -> None:
    """PTRACE_LISTEN: stay in the group stop and wake up on SIGCONT, as if nobody traced."""
    _ptrace(_LISTEN, tid, None, None)


def event_message(tid: int) -> int:
    """PTRACE_GETEVENTMSG: the new task of a fork event, the former thread id of an exec event; 0 if it is gone."""
    if _ptrace(_GETEVENTMSG, tid, None, _message_address) < 0:
        return 0
    return int(_message[0])


def syscall_info(tid: int) -> tuple[int, int, tuple[int, ...]] | None:
    """PTRACE_GET_SYSCALL_INFO at a seccomp or entry stop: (audit architecture, number, six arguments).

    None at an exit stop, or if the tracee is gone.
    """
    if _ptrace(_GET_SYSCALL_INFO, tid, ctypes.c_void_p(88), _info_address) <= 0:
        return None
    operation, arch, _ip, _sp, number, *arguments = _unpack_syscall(_info)
    if operation == _OP_EXIT:
        return None
    return arch, number, tuple(arguments)


def signal_origin(tid: int) -> tuple[int, int]:
    """PTRACE_GETSIGINFO at a signal stop: (si_code, sender's pid); (0, 0) if it is gone."""
    if _ptrace(_GETSIGINFO, tid, None, _info_address) < 0:
        return 0, 0
    _signo, _errno, code, sender, _uid = _unpack_siginfo(_info)
    return code, sender


def registers(tid: int) -> bytes | None:
    """PTRACE_GETREGS (see `tracing.registers`); None if it is gone."""
    if _ptrace(_GETREGS, tid, None, _registers_address) < 0:
        return None
    return bytes(_registers)


def set_registers(tid: int, content: bytes) -> None:
    """PTRACE_SETREGS. A tracee that died meanwhile is reported by waitpid, not here."""
    _registers[:] = content
    _ptrace(_SETREGS, tid, None, _registers_address)


def signal_mask(tid: int) -> bytes | None:
    """PTRACE_GETSIGMASK: the blocked signals, one bit each; None if it is gone."""
    if _ptrace(_GETSIGMASK, tid, ctypes.c_void_p(_SIGMASK_BYTES), _info_address) < 0:
        return None
    return bytes(_info[:_SIGMASK_BYTES])


def set_signal_mask(tid: int, mask: bytes) -> None:
    """PTRACE_SETSIGMASK. SIGKILL and SIGSTOP cannot be blocked. A tracee that died is reported by waitpid, not here."""
    _info[:_SIGMASK_BYTES] = mask
    _ptrace(_SETSIGMASK, tid, ctypes.c_void_p(_SIGMASK_BYTES), _info_address)


def answer_syscall(tid: int, value: int) -> None:
    """At a seccomp or entry stop: the call is not made and returns `value`, a negative errno for a failure.

    seccomp(2), SECCOMP_RET_TRACE.
    """
    _ptrace(_POKEUSER, tid, ctypes.c_void_p(_ORIG_RAX), ctypes.c_void_p(0xFFFFFFFFFFFFFFFF))
    set_result(tid, value)


def set_result(tid: int, value: int) -> None:
    """What a call returns, at its exit or where it is not made."""
    _ptrace(_POKEUSER, tid, ctypes.c_void_p(_RAX), ctypes.c_void_p(value & 0xFFFFFFFFFFFFFFFF))


def interrupted_call(tid: int) -> tuple[int, int, tuple[int, ...]] | None:
    """At a signal stop: the call (as `syscall_info`) that this signal ends with EINTR unless it has SA_RESTART."""
    if _ptrace(_GETREGS, tid, None, _registers_address) < 0:
        return None
    *_, rbp, rbx, _r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, number, _ip, cs = _unpack_registers(_registers)
    if rax != -_ERESTARTSYS:
        return None
    if cs == _CS_32:
        return ARCH_I386, number, (rbx, rcx, rdx, rsi, rdi, rbp)
    return ARCH_X86_64, number, (rdi, rsi, rdx, r10, r8, r9)


def restart_interrupted(tid: int) -> None:
    """At a signal stop: the interrupted call begins anew after the handler, whatever the handler's flags say."""
    _ptrace(_POKEUSER, tid, ctypes.c_void_p(_RAX), ctypes.c_void_p(-_ERESTARTNOINTR & 0xFFFFFFFFFFFFFFFF))
