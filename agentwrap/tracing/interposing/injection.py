"""Calls made by a program that has not begun: between its exec and its first instruction (ptrace(2)).

Nobody else is in that address space, and nothing of it has run. Registers, memory and the signal mask are put back as
they were, so that the program begins as if nothing had been. Knows registers and stops; knows nothing of what the calls
are for. All of it happens on the thread that traces, which waits for this one tracee meanwhile.
"""

import os
import signal
import struct
from resource import struct_rusage
from types import TracebackType
from typing import Self

from agentwrap.tracing import ptrace, registers
from agentwrap.tracing.stops import StopKind, classify

SCRATCH_BYTES = 512
_SCRATCH_BELOW = 1024  # the stack of a new program is mapped far below its pointer (fs/exec.c, setup_arg_pages)
_AT_SYSINFO_EHDR = 33  # getauxval(3): where the vdso lies
_VDSO_BYTES = 16 << 10
_SYSCALL = b"\x0f\x05"
_EVERY_SIGNAL = b"\xff" * 8
_MOST_STOPS = 64
_CONTINUES = 1 << (signal.SIGCONT - 1)

_in_vdso = -1
"""Where a `syscall` instruction lies in the vdso, which is the same for every 64-bit program. -1: not looked up yet."""


class InjectionError(Exception):
    """No call can be made here; what there was is restored."""


class GoneError(Exception):
    """The tracee died meanwhile; waitpid's news of it, which nobody else will get."""

    def __init__(self, status: int, usage: struct_rusage) -> None:
        super().__init__(status)
        self.status = status
        self.usage = usage


class Injection:
    """For one tracee that stands at PTRACE_EVENT_EXEC: a context in which it makes calls.

    Afterwards it stands at the exit from its execve. Signals that come meanwhile stay pending. Raises InjectionError
    (a 32-bit program, no memory to be had) and GoneError.
    """

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self._memory = -1
        self._mask = b""
        self._before = b""
        self._kept: list[tuple[int, bytes]] = []
        self._instruction = 0
        self._stopped_by: list[int] = []
        self.scratch = 0

    def __enter__(self) -> Self:
        try:
            self._begin()
        except OSError as error:
            self._end()
            raise InjectionError(str(error)) from error
        except InjectionError:
            self._end()
            raise
        except GoneError:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, GoneError):
            self._close()
        else:
            self._end()

    def _begin(self) -> None:
        mask = ptrace.signal_mask(self.tid)
        if mask is not None:
            self._mask = mask
            ptrace.set_signal_mask(self.tid, _EVERY_SIGNAL)
        # What execve itself returns is put into the registers after the event's stop, over anything of ours.
        self._go_on()
        before = ptrace.registers(self.tid)
        if before is None:
            self._go_on()  # killed: that is what comes
            raise InjectionError("the program's registers are out of reach")
        self._before = before
        if not registers.is_wide(before):
            raise InjectionError("a 32-bit program")
        self._memory = os.open(f"/proc/{self.tid}/mem", os.O_RDWR | os.O_CLOEXEC)
        ip, sp = registers.pointers(before)
        self.scratch = (sp - _SCRATCH_BELOW) & ~15
        self._keep(self.scratch, SCRATCH_BYTES)
        self._instruction = self._find_instruction()
        if not self._instruction:
            self._keep(ip, len(_SYSCALL))
            self.write(ip, _SYSCALL)
            self._instruction = ip

    def _keep(self, address: int, size: int) -> None:
        self._kept.append((address, self.read(address, size)))

    def _find_instruction(self) -> int:
        """In the vdso; 0 where there is none (vdso=0 on the kernel's command line)."""
        global _in_vdso
        with open(f"/proc/{self.tid}/auxv", "rb") as file:
            auxv = file.read(4096)
        pairs = struct.iter_unpack("=QQ", auxv[: len(auxv) & ~15])
        base = next((int(value) for kind, value in pairs if kind == _AT_SYSINFO_EHDR), 0)
        if base and _in_vdso < 0:
            _in_vdso = os.pread(self._memory, _VDSO_BYTES, base).find(_SYSCALL)
        return base + _in_vdso if base and _in_vdso >= 0 else 0

    def read(self, address: int, size: int) -> bytes:
        """Memory of the program. Raises InjectionError."""
        try:
            data = os.pread(self._memory, size, address)
        except (OSError, OverflowError) as error:
            raise InjectionError(f"reading memory: {error}") from error
        if len(data) < size:
            raise InjectionError("memory ends there")
        return data

    def write(self, address: int, data: bytes) -> None:
        """Put `data` at `scratch` or behind it, up to SCRATCH_BYTES. Raises InjectionError."""
        try:
            written = os.pwrite(self._memory, data, address)
        except (OSError, OverflowError) as error:
            raise InjectionError(f"writing memory: {error}") from error
        if written < len(data):
            raise InjectionError("memory ends there")

    def call(self, number: int, *arguments: int) -> int:
        """Let the program make a call, of the x86-64 table: what it returns, a negative errno for a failure."""
        about = registers.about_to_call(self._before, self._instruction, number, arguments)
        ptrace.set_registers(self.tid, about)
        self._go_on()  # its entry
        self._go_on()  # its exit
        after = ptrace.registers(self.tid)
        if after is None:
            self._go_on()
            raise InjectionError("the program's registers are out of reach")
        return registers.result(after)

    def _go_on(self) -> None:
        """To the next entry to or exit from a call, past whatever else a tracee stops for."""
        for _ in range(_MOST_STOPS):
            ptrace.resume_to_call(self.tid)
            _, status, usage = os.wait4(self.tid, ptrace.WALL)
            stop = classify(status)
            if stop.kind is StopKind.EDGE:
                return
            if stop.kind is StopKind.GONE:
                raise GoneError(status, usage)
            if stop.kind in (StopKind.SIGNAL, StopKind.GROUP) and stop.value == signal.SIGSTOP:
                self._stopped_by.append(stop.value)  # the one signal that is neither deadly nor blocked
        raise InjectionError("the program does not come to its call")

    def _end(self) -> None:
        if self._memory >= 0:
            for address, data in self._kept:
                try:
                    os.pwrite(self._memory, data, address)
                except OSError:
                    break  # killed: nobody is left to see it
        if self._before:
            ptrace.set_registers(self.tid, self._before)
        if self._mask:
            ptrace.set_signal_mask(self.tid, self._mask)
        self._close()
        if self._stopped_by and not _continues(self.tid):
            try:
                os.kill(self.tid, signal.SIGSTOP)
            except ProcessLookupError:
                pass  # killed meanwhile

    def _close(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1


def _continues(pid: int) -> bool:
    """Whether SIGCONT is pending, so that it came after the stop that was put off (signal(7): one undoes the other)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = [int(line[7:], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:
        return False
    return any(mask & _CONTINUES for mask in pending)
