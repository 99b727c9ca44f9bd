"""The guard at ptrace's stops: what it decides is written into the registers of the thread that stands there.

A socket is made by the program itself and held back at the exit of that call. In between, nothing that names an
address is let go in a process whose threads share it, and none that was let go is still under way: else one of them
could put the new socket under it.
"""

import errno
from collections.abc import Callable

from agentwrap.launching.seccomp import ARCH_I386, ARCH_X86_64
from agentwrap.tracing import ptrace, registers
from agentwrap.tracing.guard.calls import ANSWERED, PASS, Arguments
from agentwrap.tracing.guard.guard import Guard
from agentwrap.tracing.guard.sharing import RACY
from agentwrap.tracing.guard.stopped import Finish, Instead, Stopped
from agentwrap.tracing.processes import Process
from agentwrap.tracing.syscalls import watched
from agentwrap.tracing.syscalls.tables import i386, x86_64

_NUMBERS = {ARCH_X86_64: {**x86_64.NUMBERS, "poll": 7}, ARCH_I386: {**i386.NUMBERS, "poll": 168}}
# linux/net.h: socketcall(2) numbers of socket; connect, sendto, sendmsg, sendmmsg
_MAKES, _NAMES = 1, (3, 11, 16, 20)


class Performer:
    """For the ptrace loop. `resume(tid)`: go on as usual there; `answer(tid, value)`: the call is not made."""

    def __init__(
        self, guard: Guard, stopped: Stopped, resume: Callable[[int], None], answer: Callable[[int, int], None]
    ) -> None:
        self._guard = guard
        self._stopped = stopped
        self._resume = resume
        self._answer = answer
        self._names = watched.names()
        self._inside: dict[int, tuple[bytes, Finish]] = {}  # registers at the entry, and what the exit means
        self._making: dict[int, int] = {}  # whose descriptors (`Guard.group`) are about to get a new socket
        self._let_go: dict[int, int] = {}  # and who may name an address meanwhile
        self._held: dict[int, tuple[Process, int, int, Arguments]] = {}

    def enter(self, process: Process, tid: int, arch: int, number: int, arguments: Arguments) -> int | None:
        """At the entry to a call: an errno to refuse it with, 0 to let it go, None: all is done, it goes on."""
        name = self._names.get((arch, number), "")
        makes, names = name == "socket", name in RACY
        if name == "socketcall":
            makes, names = arguments[0] & 0xFFFFFFFF == _MAKES, arguments[0] & 0xFFFFFFFF in _NAMES
        shared = (makes or names) and self._guard.shares(process)
        if shared and self._must_wait(self._guard.group(process), makes=makes):
            self._held[tid] = (process, arch, number, arguments)
            return None
        outcome = self._guard.handle(process, tid, tid, arch, number, arguments)
        if outcome == PASS:
            return self._pass(process, tid, arch, name, tracked=shared and names)
        if outcome != ANSWERED:
            return outcome
        decision = self._stopped.take()
        if isinstance(decision, Instead):
            if decision.name == "socket" and shared:
                self._making[tid] = self._guard.group(process)
            self._put(tid, arch, decision)
        else:
            self._answer(tid, decision.value)
            self._resume(tid)
        return None

    def _must_wait(self, group: int, *, makes: bool) -> bool:
        if not makes:
            return group in self._making.values()
        under_way = [tid for tid, other in self._let_go.items() if other == group]
        for tid in under_way:
            ptrace.interrupt(tid)  # it may sleep for ever: it ends and begins anew, as by a signal
        return bool(under_way)

    def _pass(self, process: Process, tid: int, arch: int, name: str, *, tracked: bool) -> int | None:
        """Arguments of socketcall(2) lie in memory: the copy that was looked at is what the call gets."""
        if name != "socketcall" and not tracked:
            return 0
        if tracked:
            self._let_go[tid] = self._guard.group(process)
        direct, words = self._guard.asked
        if name == "socketcall" and direct in _NUMBERS[arch]:
            self._put(tid, arch, Instead(direct, words, _as_it_is))
            return None
        entry = ptrace.registers(tid)
        if entry is None:
            return 0
        self._follow(tid, entry, _as_it_is)
        return None

    def _put(self, tid: int, arch: int, other: Instead) -> None:
        entry = ptrace.registers(tid)
        if entry is None:
            other.finish(None)
            self._resume(tid)
            return
        ptrace.set_registers(tid, registers.with_call(entry, arch, _NUMBERS[arch][other.name], other.arguments))
        self._follow(tid, entry, other.finish)

    def _follow(self, tid: int, entry: bytes, finish: Finish) -> None:
        self._inside[tid] = entry, finish
        ptrace.resume_to_call(tid)

    def leave(self, tid: int) -> None:
        """At the exit from a call, if it is one of those that are waited for."""
        inside = self._inside.pop(tid, None)
        try:
            if inside is not None:
                self._finish(tid, *inside)
        finally:
            self._over(tid)

    def _finish(self, tid: int, entry: bytes, finish: Finish) -> None:
        now = ptrace.registers(tid)
        if now is None:
            finish(None)
            return
        outcome: int | None = -errno.EPERM
        try:
            outcome = finish(registers.result(now))
        except OSError as error:
            outcome = -(error.errno or errno.EPERM)
        finally:
            after = registers.once_more(entry) if outcome is None else registers.with_result(entry, outcome)
            ptrace.set_registers(tid, after)

    def gone(self, tid: int) -> None:
        """The thread is dead, or another program."""
        inside = self._inside.pop(tid, None)
        self._held.pop(tid, None)
        try:
            if inside is not None:
                inside[1](None)
        finally:
            self._over(tid)

    def _over(self, tid: int) -> None:
        if self._making.pop(tid, None) is None and self._let_go.pop(tid, None) is None:
            return
        held, self._held = self._held, {}
        for waiting, (process, arch, number, arguments) in held.items():
            outcome = self.enter(process, waiting, arch, number, arguments)
            if outcome:
                self._answer(waiting, -outcome)
            if outcome is not None:
                self._resume(waiting)


def _as_it_is(returned: int | None) -> int | None:
    return returned
