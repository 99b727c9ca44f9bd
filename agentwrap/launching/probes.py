"""Probes: what this machine lets us do for following a tree, found out by doing it in a forked child.

Each probe is one small function that returns a `Probe`: what was tried, whether it worked, what was seen, and what a
person can do about it. A probe never trusts a version number or a setting where it can try the thing itself, leaves
nothing behind, and ends within seconds. What the results add up to is decided in `doctor`.
"""

import ctypes
import errno
import fcntl
import os
import signal
import struct
from dataclasses import dataclass
from typing import Literal

from agentwrap.launching.doctor_calls import (
    PR_SET_CHILD_SUBREAPER,
    SECCOMP_RET_ERRNO,
    SECCOMP_RET_TRACE,
    SECCOMP_RET_USER_NOTIF,
    Refused,
    attempt,
    call,
    filter_one,
    forked,
    prctl,
    ptrace,
)

# linux/seccomp.h
NEW_LISTENER = 1 << 3
WAIT_KILLABLE_RECV = 1 << 5
NOTIF_RECV = 0xC0502100
NOTIF_SEND = 0xC0182101
NOTIF_SET_FLAGS = 0x40082104
SYNC_WAKE_UP = 1
# linux/ptrace.h
SEIZE, INTERRUPT, CONT = 0x4206, 0x4207, 7
GET_SYSCALL_INFO = 0x420E
OPTIONS_FOLLOW = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x00100000  # SYSGOOD FORK VFORK CLONE EXEC EXITKILL
OPTION_SECCOMP = 0x80
EVENT_STOP, EVENT_SECCOMP = 128, 7

NOT_KILLABLE = "no WAIT_KILLABLE_RECV"

Weight = Literal["needed", "useful", "fact"]


@dataclass(frozen=True)
class Probe:
    """One check. `weight`: a run needs it, is better with it, or it is only told. `name` is stable (`--json`)."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    weight: Weight = "useful"


CONTAINER_FIX = "allow it in the container's seccomp profile (Docker: `--security-opt seccomp=FILE`)"
YAMA_FIX = "`sysctl kernel.yama.ptrace_scope=1`, or run as root"
YAMA_3_FIX = "a restart with `kernel.yama.ptrace_scope=1`: 3 is not taken back before"


def seccomp_filter() -> Probe:
    """A filter of our own answers a system call."""

    def work() -> str:
        filter_one("getpgid", SECCOMP_RET_ERRNO | errno.EDOM)
        try:
            call("getpgid", 0)
        except OSError as error:
            if error.errno == errno.EDOM:
                return "a filter answers calls"
        raise Refused(0, "the filter is installed but answers nothing")

    name = "seccomp-filter"
    try:
        return Probe(name, True, attempt(work), weight="needed")
    except Refused as refused:
        return Probe(name, False, f"seccomp(2): {refused.name}", CONTAINER_FIX, weight="needed")


def notification() -> Probe:
    """A listener receives a call of another process and answers it; which of the two newer flags the kernel has.

    Without WAIT_KILLABLE_RECV a run does not use it: each signal would restart a call that is being looked at, and a
    timer of 2 ms then keeps it from ever returning.
    """
    name = "user-notification"
    try:
        words = attempt(_notify)
        usable = NOT_KILLABLE not in words
        return Probe(name, usable, words, "Linux 5.19 or newer; until then ptrace alone is used", weight="needed")
    except Refused as refused:
        if refused.number == errno.EBUSY:
            return Probe(
                name,
                False,
                "EBUSY: a listener above us has the tree already",
                "run outside the sandbox, container or agentwrap that installed it",
                weight="needed",
            )
        return Probe(name, False, f"seccomp(NEW_LISTENER): {refused.name}", CONTAINER_FIX, weight="needed")


def _notify() -> str:
    flags = NEW_LISTENER | WAIT_KILLABLE_RECV
    try:
        listener = filter_one("getpgid", SECCOMP_RET_USER_NOTIF, flags)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        flags = NEW_LISTENER  # kernels before 5.19 know no WAIT_KILLABLE_RECV
        listener = filter_one("getpgid", SECCOMP_RET_USER_NOTIF, flags)

    def ask() -> None:
        if call("getpgid", 0) != 4242:
            raise Refused(0, "another answer than ours")

    child = forked(ask)
    asked = bytearray(80)  # struct seccomp_notif; the kernel refuses a buffer that is not zeroed
    fcntl.ioctl(listener, NOTIF_RECV, asked)
    (request,) = struct.unpack_from("=Q", asked)
    fcntl.ioctl(listener, NOTIF_SEND, bytearray(struct.pack("=QqiI", request, 4242, 0, 0)))
    _, status = os.waitpid(child, 0)
    if status:
        raise Refused(0, "the answer did not arrive")
    words = ["WAIT_KILLABLE_RECV" if flags & WAIT_KILLABLE_RECV else NOT_KILLABLE]
    try:
        fcntl.ioctl(listener, NOTIF_SET_FLAGS, SYNC_WAKE_UP)
        words.append("SYNC_WAKE_UP")
    except OSError:
        words.append("no SYNC_WAKE_UP")  # before 6.6
    return "answers calls, " + ", ".join(words)


def _waiting_child() -> int:
    """A child that does nothing until it is killed."""

    def wait() -> None:
        signal.pause()

    return forked(wait)


def ptrace_seize() -> Probe:
    """SEIZE with the options that follow forks and execs, a stop, and the question which call it is in."""

    def work() -> str:
        child = _waiting_child()
        ptrace(SEIZE, child, 0, OPTIONS_FOLLOW)
        ptrace(INTERRUPT, child)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status) or status >> 16 != EVENT_STOP:
            raise Refused(0, f"no group stop (status {status:#x})")
        answer = ctypes.create_string_buffer(88)
        ptrace(GET_SYSCALL_INFO, child, len(answer), ctypes.addressof(answer))  # EIO before 5.3
        return "follows a child"

    name = "ptrace"
    try:
        return Probe(name, True, attempt(work), weight="needed")
    except Refused as refused:
        fix = "Linux 5.3 or newer" if refused.number == errno.EIO else _attach_fix()
        return Probe(name, False, f"PTRACE_SEIZE: {refused.name}", fix, weight="needed")


def _attach_fix() -> str:
    if status_field("TracerPid") not in ("", "0"):
        return "a tracer has this process already: run outside the debugger or agentwrap above us"
    scope = yama_scope()
    if scope == 3:
        return YAMA_3_FIX
    return YAMA_FIX if scope == 2 else "`--cap-add SYS_PTRACE`, or a profile that allows ptrace"


def seccomp_trace() -> Probe:
    """A filter's RET_TRACE becomes a ptrace stop: the way without a listener."""

    def work() -> str:
        reading, writing = os.pipe()

        def ask() -> None:
            os.read(reading, 1)
            filter_one("getpgid", SECCOMP_RET_TRACE)
            call("getpgid", 0)

        child = forked(ask)
        ptrace(SEIZE, child, 0, OPTIONS_FOLLOW | OPTION_SECCOMP)
        os.write(writing, b"g")
        _, status = os.waitpid(child, 0)
        if os.WIFSTOPPED(status) and status >> 16 == EVENT_SECCOMP:
            return "a filtered call stops"
        raise Refused(0, f"no seccomp stop (status {status:#x})")

    name = "seccomp-trace"
    try:
        return Probe(name, True, attempt(work))
    except Refused as refused:
        return Probe(name, False, f"RET_TRACE: {refused.name}", "only needed where user notification is missing")


def yama_scope() -> int | None:
    """kernel.yama.ptrace_scope (0 to 3), or None where there is no Yama."""
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def yama() -> Probe:
    """Which processes may be attached to at all (Documentation/admin-guide/LSM/Yama.rst)."""
    scope = yama_scope()
    words = {
        None: "no Yama",
        0: "0: any process of the same user",
        1: "1: descendants only, which is enough",
        2: "2: only with CAP_SYS_PTRACE",
        3: "3: nobody, until the next boot",
    }.get(scope, str(scope))
    hindered = scope == 3 or (scope == 2 and not has_capability(19))
    return Probe(
        "yama", not hindered, words, ("" if not hindered else YAMA_3_FIX if scope == 3 else YAMA_FIX), weight="fact"
    )


def has_capability(bit: int) -> bool:
    """Whether this process has a capability in its effective set (capabilities(7))."""
    return bool(int(status_field("CapEff") or "0", 16) >> bit & 1)


def status_field(name: str) -> str:
    """One line of /proc/self/status, empty where it is missing."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(name + ":"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def process_vm_readv() -> Probe:
    """The memory of a child by system call."""

    def work() -> str:
        secret = ctypes.create_string_buffer(b"agentwrap")
        child = _waiting_child()
        into = ctypes.create_string_buffer(9)
        local = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(into), 9))
        remote = ctypes.create_string_buffer(struct.pack("@PN", ctypes.addressof(secret), 9))
        call("process_vm_readv", child, local, 1, remote, 1, 0)
        return "reads a child" if into.raw == b"agentwrap" else "other bytes than expected"

    name = "process-vm-readv"
    try:
        return Probe(name, True, attempt(work), weight="fact")
    except Refused as refused:
        return Probe(name, False, refused.name, "not needed where /proc/PID/mem can be read", weight="fact")


def proc_mem() -> Probe:
    """The memory of a child by /proc/PID/mem: how arguments and paths are read."""

    def work() -> str:
        secret = ctypes.create_string_buffer(b"agentwrap")
        child = _waiting_child()
        descriptor = os.open(f"/proc/{child}/mem", os.O_RDONLY | os.O_CLOEXEC)
        found = os.pread(descriptor, 9, ctypes.addressof(secret))
        return "reads a child" if found == b"agentwrap" else "other bytes than expected"

    name = "proc-mem"
    try:
        return Probe(name, True, attempt(work), weight="needed")
    except Refused as refused:
        return Probe(name, False, f"{refused.name}: paths and arguments cannot be read", _attach_fix(), weight="needed")


def pidfd_open() -> Probe:
    """A descriptor for a process: waiting and signalling without races over its number."""

    def work() -> str:
        os.close(call("pidfd_open", _waiting_child(), 0))
        return "names a child"

    try:
        return Probe("pidfd-open", True, attempt(work))
    except Refused as refused:
        return Probe("pidfd-open", False, refused.name, "Linux 5.3 or newer; followed by number until then")


def pidfd_getfd() -> Probe:
    """A copy of a child's descriptor; where it is refused the listener travels over a socket instead."""

    def work() -> str:
        reading, _ = os.pipe()
        pidfd = call("pidfd_open", _waiting_child(), 0)
        os.close(call("pidfd_getfd", pidfd, reading, 0))
        return "copies a descriptor of a child"

    try:
        return Probe("pidfd-getfd", True, attempt(work), weight="fact")
    except Refused as refused:
        fix = "not needed: descriptors are passed over a socket (Docker's profile refuses this call)"
        return Probe("pidfd-getfd", False, refused.name, fix, weight="fact")


def subreaper() -> Probe:
    """Orphans of the tree come to us, so that a daemon is still seen and ended."""

    def work() -> str:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        reading, writing = os.pipe()
        ours = os.getpid()

        def middle() -> None:
            mother = os.getpid()

            def orphan() -> None:
                prctl(1, 0)  # PR_SET_PDEATHSIG off: it is to outlive its parent
                os.kill(mother, signal.SIGKILL)
                while os.getppid() == mother:
                    os.sched_yield()
                os.write(writing, b"y" if os.getppid() == ours else b"n")

            forked(orphan)
            signal.pause()

        forked(middle)
        if os.read(reading, 1) != b"y":
            raise Refused(0, "orphans go elsewhere")
        return "orphans come to us"

    try:
        return Probe("subreaper", True, attempt(work), weight="needed")
    except Refused as refused:
        fix = "daemons would be lost; the sandbox refuses prctl(PR_SET_CHILD_SUBREAPER)"
        return Probe("subreaper", False, refused.name, fix, weight="needed")
